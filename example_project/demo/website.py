"""The help desk in the browser: a web server on this machine, and what a person has to know to use it."""

from __future__ import annotations

import errno
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from example_project.demo.outcome import DemoError
from example_project.demo.processes import Processes
from example_project.demo.terminal import Terminal
from example_project.helpdesk.seed import ADA, STAFF, remove_logins, seed_logins

_HOST = "127.0.0.1"
_PORTS_TRIED = 100
_START_SECONDS = 30.0
_NEXT = """
Ada writes tickets; the staff reads all of them, and sees in the admin how each turn went.
Ask for a refund, "What are my orders?", or whatever you like; then look at the turn in the admin.
"Think about it" is answered after 15 seconds: time to try Cancel.
Other ways to run it:
- make demo ARGS=--once                          the story only
- make demo ARGS='--ticket "Where is order 1002?"'
- DEMO_MODEL=openai/gpt-5-mini make demo         with OPENAI_API_KEY set: a real model instead of the script
- example_project/helpdesk/agents.py, tools.py   the agent that you have just seen
"""


@contextmanager
def opened(terminal: Terminal, processes: Processes, *, port: int) -> Iterator[None]:
    """Start it, and say where it is and who logs in; the logins are for the block only.

    Args:
        port: Where to look for a free one first.

    Raises:
        DemoError: No port is free, the server does not come up, or the database has such logins already.
    """
    password = secrets.token_hex(6)
    port = _free_port(port)
    try:
        seed_logins(password)
    except ValueError as error:
        raise DemoError(f"The demo makes logins of its own: {error}") from error
    try:
        processes.manage("web server", "runserver", "--noreload", f"{_HOST}:{port}")
        processes.wait_until("the web server answers", lambda: _answers(port), seconds=_START_SECONDS)
        _introduce(terminal, f"http://{_HOST}:{port}/", password)
        yield
    finally:
        # The database may be somebody's own, where they would stay.
        remove_logins()


def _introduce(terminal: Terminal, address: str, password: str) -> None:
    terminal.title("The help desk is open in your browser")
    # Lines that a narrow terminal does not break.
    terminal.print(f"{address}        log in as {ADA}", style="good")
    terminal.print(f"{address}admin/  log in as {STAFF}", style="good")
    terminal.print(f"password of both: {password}", style="good")
    terminal.print(_NEXT)
    terminal.print("Ctrl-C stops all of it.", style="loud")


def _free_port(first: int) -> int:
    for port in range(first, min(first + _PORTS_TRIED, 65_536)):
        with socket.socket() as probe:
            # As the server will do it: a port whose last connections are only being closed is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError as error:
                if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                    raise
            else:
                return port
    raise DemoError(f"no port from {first} to {port} is free; name another one with --port")


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection((_HOST, port), timeout=1):
        return True
    return False
