"""One run of the demo, from the servers to the verdict."""

from __future__ import annotations

import os
import re
import traceback
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import django
from django.core.management import call_command

from example_project.demo.footprint import Footprint, footprint
from example_project.demo.outcome import Check, DemoError
from example_project.demo.processes import Process, Processes
from example_project.demo.servers import Place, servers
from example_project.demo.signals import Signals
from example_project.demo.terminal import Terminal

if TYPE_CHECKING:
    from example_project.demo.story import Story

# Modules that need Django's app registry are imported inside the functions: the settings need the servers first.

_SCRIPT = "example_project.script:help_desk"
_LISTENING = re.compile(r"listening on (\S+)\n")
_SERVER_SECONDS = 30.0
_STOPPING = "told to stop: everything that was started is being stopped"
_OK, _FAILED, _STOPPED = 0, 1, 130
_INTRODUCTION = """A customer of a small shop writes to its help desk. An agent looks the order up, refunds it,
leaves a note for the staff and answers. In the middle of that its worker process is killed;
another one finishes the work, and the money goes back once.
Everything but the model is real, and everything that is started here is stopped at the end.
"""


class Demo:
    """Args:
    ticket: What the customer writes; None is the usual complaint.
    port: Where the help desk is to be opened in the browser afterwards; None ends with the story.
    """

    def __init__(self, *, ticket: str | None, port: int | None) -> None:
        self._ticket = ticket
        self._port = port
        self._model = os.environ.get("DEMO_MODEL", "").strip()
        self._signals = Signals()
        self._terminal = Terminal()
        self._place = Place()
        self._checks: list[Check] = []
        self._log = ""

    def run(self) -> int:
        """Play, stop everything, look what is left, and say whether all went well; the exit code."""
        self._terminal.title("turnkit_django: an agent that survives kill -9")
        self._terminal.print(_INTRODUCTION)
        with self._signals.caught(), footprint() as run:
            code = self._guarded(run)
            left = [*run.leftovers(), *self._place.leftovers]
            return self._verdict(code, left, seen=run.seen)

    def _guarded(self, run: Footprint) -> int:
        try:
            with ExitStack() as stack:
                self._play(run, stack)
                run.look()
        except KeyboardInterrupt:
            self._terminal.say(_STOPPING, style="loud")
            return _STOPPED
        except DemoError as error:
            self._terminal.print(error.log, style="quiet")
            self._terminal.print(f"FAILED: {error}", style="bad")
            return _FAILED
        except Exception as error:
            self._terminal.print(traceback.format_exc(), style="quiet")
            self._terminal.print(f"FAILED: the demo itself broke: {type(error).__name__}: {error}", style="bad")
            return _FAILED
        return _OK

    def _play(self, run: Footprint, stack: ExitStack) -> None:
        say = self._terminal.say
        stack.enter_context(servers(run, self._place))
        for note in self._place.notes:
            say(note)
        processes = stack.enter_context(Processes(run.logs, self._signals).stopped_at_the_end())
        server = self._start_model(processes)
        _set_up_django(stack)
        from example_project.demo import evidence, report, story
        from example_project.helpdesk.seed import seed

        call_command("migrate", verbosity=0)
        customers, orders = seed()
        say(f"migrated and seeded: {customers} customers with {orders} orders")
        self._point_to_model(processes, server)
        text = self._ticket or story.complaint()
        self._terminal.quote("The ticket of Ada Lovelace", text)
        run.look()
        told = story.tell(self._terminal, processes, text)
        run.look()
        report.tables(self._terminal, told, is_real_model=bool(self._model))
        self._checks = list(evidence.checks(told, must_be_killed=self._ticket is None))
        self._log = processes.tails()
        if self._port is not None and self._hold(self._checks):
            self._serve(run, processes, told, self._port)

    def _start_model(self, processes: Processes) -> Process | None:
        """The script's server; none if a real model is to be asked."""
        if not self._model:
            return processes.start("model server", "-m", "turnkit_django.testing.model_server", _SCRIPT, "--port", "0")
        from turnkit_django.clients import LiteLLMClient
        from turnkit_django.errors import ConfigError

        try:
            LiteLLMClient().validate(self._model)
        except ConfigError as error:
            raise DemoError(f"DEMO_MODEL={self._model}: {error}") from None
        self._terminal.say(f"the model is {self._model}, for real: this costs money", style="loud")
        return None

    def _point_to_model(self, processes: Processes, server: Process | None) -> None:
        """Send litellm to the script, in every process that is started from here on."""
        if server is None:
            return
        processes.wait_until("the model server listens", lambda: bool(_address(server)), seconds=_SERVER_SECONDS)
        address = _address(server)
        # A proxy of the machine must not be asked for a loopback address.
        direct = ",".join(filter(None, (os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), "127.0.0.1")))
        os.environ |= {
            "OPENAI_API_BASE": address,
            "OPENAI_BASE_URL": address,
            "OPENAI_API_KEY": "no-key-needed",
            "NO_PROXY": direct,
            "no_proxy": direct,
        }
        self._terminal.say(f"no DEMO_MODEL is set, so a script plays the model, over real HTTP at {address}")

    def _serve(self, run: Footprint, processes: Processes, told: Story, port: int) -> None:
        """Keep the help desk open until the demo is told to stop, which is then its proper end."""
        from example_project.demo import story, website

        self._checks = []  # they have been shown
        story.replace_blocked_worker(processes, told)
        with website.opened(self._terminal, processes, port=port):
            run.look()
            with suppress(KeyboardInterrupt):
                processes.watch()
            self._terminal.say(_STOPPING, style="loud")

    def _verdict(self, code: int, left: list[str], *, seen: int) -> int:
        nothing = f"{seen} processes ran; all are gone, and so are the folders and files they made"
        cleaned = Check("Nothing was left behind", ", ".join(left) or nothing, holds=not left)
        if code != _OK:
            said = cleaned.claim if cleaned.holds else "LEFT BEHIND"
            self._terminal.print(f"{said}: {cleaned.evidence}", style="quiet" if cleaned.holds else "bad")
            return code
        return _OK if self._hold([*self._checks, cleaned]) else _FAILED

    def _hold(self, checks: list[Check]) -> bool:
        """Show the checks; whether all of them hold."""
        self._terminal.table("Checked", ["", "claim", "evidence"], [check.row() for check in checks])
        failed = [check for check in checks if not check.holds]
        if failed:
            self._terminal.print(self._log, style="quiet")
        for check in failed:
            self._terminal.print(f"FAILED: {check.claim}: {check.evidence}", style="bad")
        if not failed:
            self._terminal.print("All of it holds.", style="good")
        return not failed


def _set_up_django(stack: ExitStack) -> None:
    os.environ |= {"DJANGO_SETTINGS_MODULE": "example_project.demo.settings", "DEBUG": "1"}
    django.setup()
    from django.db import connections

    def close() -> None:
        for connection in connections.all(initialized_only=True):
            connection.close()
            # A pool would try to reach a server that is about to stop.
            if hasattr(connection, "close_pool"):
                connection.close_pool()

    stack.callback(close)


def _address(server: Process) -> str:
    found = _LISTENING.search(server.text())
    return found[1] if found else ""
