"""One run of the demo, from the servers to the verdict."""

from __future__ import annotations

import os
import re
import traceback
from contextlib import ExitStack
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
_OK, _FAILED, _STOPPED = 0, 1, 130
_INTRODUCTION = """A customer of a small shop writes to its help desk. An agent looks the order up, refunds it,
leaves a note for the staff and answers. In the middle of that its worker process is killed;
another one finishes the work, and the money goes back once.
Everything but the model is real, and everything that is started here is stopped at the end.
"""
_NEXT = """What next:
- make demo                                      at a terminal: then you can write tickets yourself
- make demo ARGS='--once --ticket "Where is order 1002?"'
- DEMO_MODEL=openai/gpt-5-mini make demo         with OPENAI_API_KEY set: a real model instead of the script
- example_project/helpdesk/agents.py, tools.py   the agent that you have just seen"""


class Demo:
    """Args:
    ticket: What the customer writes; None is the usual complaint.
    is_once: Whether to end without asking for more tickets.
    """

    def __init__(self, *, ticket: str | None, is_once: bool) -> None:
        self._ticket = ticket
        self._is_once = is_once
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
            self._terminal.say("told to stop: everything that was started is being stopped", style="loud")
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
        self._more_tickets(processes, told)

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

    def _more_tickets(self, processes: Processes, told: Story) -> None:
        from example_project.demo import story

        if self._is_once or not self._terminal.has_person:
            return
        self._terminal.title("Now you are Ada. Write a ticket; an empty line ends the demo.")
        self._terminal.print(story.ORDERS)
        while text := self._ask():
            story.answer(self._terminal, processes, told, text)

    def _ask(self) -> str:
        with self._signals.raising():
            return self._terminal.ask("Your ticket:")

    def _verdict(self, code: int, left: list[str], *, seen: int) -> int:
        nothing = f"{seen} processes ran; all are gone, and so are the folders and files they made"
        cleaned = Check("Nothing was left behind", ", ".join(left) or nothing, holds=not left)
        if code != _OK:
            said = cleaned.claim if cleaned.holds else "LEFT BEHIND"
            self._terminal.print(f"{said}: {cleaned.evidence}", style="quiet" if cleaned.holds else "bad")
            return code
        checks = [*self._checks, cleaned]
        self._terminal.table("Checked", ["", "claim", "evidence"], [check.row() for check in checks])
        failed = [check for check in checks if not check.holds]
        if failed:
            self._terminal.print(self._log, style="quiet")
            for check in failed:
                self._terminal.print(f"FAILED: {check.claim}: {check.evidence}", style="bad")
            return _FAILED
        self._terminal.print("All of it holds.", style="good")
        if not self._is_once and not self._terminal.has_person:
            self._terminal.print(_NEXT)
        return _OK


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
