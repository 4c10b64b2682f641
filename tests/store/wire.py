"""A wire between Django and PostgreSQL that counts messages and can be cut at a chosen one.

Django speaks the simple protocol (client-side binding): each message of type Q is one round trip, whatever number of
statements it holds, and BEGIN and COMMIT are messages like the others.
"""

from __future__ import annotations

import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from django.db import connection

Cut = Literal["unheard", "unsent"]
"""Where the connection dies: behind the server's work, so that only its answer is lost; or before the server hears."""

_PORT = 5432
_SETUP = "SELECT set_config("
_CANCEL = 80877102  # the protocol number of a cancel request, which nobody answers


def is_setup(sql: str) -> bool:
    """What a connection costs, not the work: Django sets its time zone, a pool checks it with an empty message."""
    return not sql or sql.startswith(_SETUP)


@dataclass
class Message:
    """One message that the server had to answer, or that was lost on its way there."""

    thread: int
    sql: str


@dataclass
class Wire:
    folder: Path
    server: tuple[str, int]
    sent: list[Message] = field(default_factory=list)
    cuts: list[str] = field(default_factory=list)
    _next_cuts: list[Cut] = field(default_factory=list)
    _at: Callable[[str], bool] = lambda sql: True
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def cut_next(self, *how: Cut, at: Callable[[str], bool] = lambda sql: True) -> None:
        """Let the connection die with the next message that is work, and with those behind it.

        Args:
            at: Which message is meant first: the renewer of the process may speak at any moment.
        """
        with self._lock:
            self._next_cuts, self._at = list(how), at

    @property
    def left(self) -> int:
        """Cuts that are still to come."""
        return len(self._next_cuts)

    def _noted(self, number: int, sql: str) -> Cut | None:
        with self._lock:
            self.sent.append(Message(number, sql))
            if not self._next_cuts or is_setup(sql) or not self._at(sql):
                return None
            self._at = lambda sql: True
            self.cuts.append(sql)
            return self._next_cuts.pop(0)

    def accept_for_ever(self, listener: socket.socket) -> None:
        number = 0
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                number += 1
                threading.Thread(target=self._relay, args=(number, client), daemon=True).start()

    def _relay(self, number: int, client: socket.socket) -> None:
        with suppress(OSError, EOFError), client, _connected(*self.server) as server:
            (length,) = struct.unpack("!i", head := _read(client, 4))
            start = _read(client, length - 4)
            server.sendall(head + start)
            if struct.unpack("!i", start[:4])[0] == _CANCEL:
                return
            _relay_until_ready(server, client)
            while self._relay_one(number, client, server):
                pass

    def _relay_one(self, number: int, client: socket.socket, server: socket.socket) -> bool:
        kind, message = _read_message(client)
        how = self._noted(number, message[5:-1].decode()) if kind == b"Q" else None
        if how == "unsent":
            return False
        server.sendall(message)
        if kind == b"X":
            return False
        if kind in b"QS":
            _relay_until_ready(server, None if how else client)
        return how is None


def _relay_until_ready(server: socket.socket, client: socket.socket | None) -> None:
    """Pass on what the server says until it waits for the next message."""
    kind = b""
    while kind != b"Z":
        kind, message = _read_message(server)
        if client is not None:
            client.sendall(message)


def _read_message(source: socket.socket) -> tuple[bytes, bytes]:
    head = _read(source, 5)
    (length,) = struct.unpack("!i", head[1:])
    return head[:1], head + _read(source, length - 4)


def _read(source: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        if not (more := source.recv(count - len(found))):
            raise EOFError
        found += more
    return found


@contextmanager
def _connected(host: str, port: int) -> Iterator[socket.socket]:
    if host.startswith("/"):
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(f"{host}/.s.PGSQL.{port}")
            yield server
    else:
        with socket.create_connection((host or "127.0.0.1", port)) as server:
            yield server


@contextmanager
def open_wire() -> Iterator[Wire]:
    """Lead all new connections of this process through a wire."""
    settings: dict[str, Any] = connection.settings_dict
    where = {"HOST": settings["HOST"], "PORT": settings["PORT"]}
    with tempfile.TemporaryDirectory(prefix="wire-") as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/.s.PGSQL.{_PORT}")
        listener.listen()
        wire = Wire(Path(folder), (str(where["HOST"]), int(where["PORT"] or _PORT)))
        threading.Thread(target=wire.accept_for_ever, args=(listener,), daemon=True).start()
        try:
            _connect_to({"HOST": folder, "PORT": str(_PORT)})
            yield wire
        finally:
            _connect_to(where)
            listener.shutdown(socket.SHUT_RDWR)


def _connect_to(where: dict[str, Any]) -> None:
    connection.close()
    connection.close_pool()
    connection.settings_dict.update(where)


def at_commit_of(transition: str, *, is_statement: bool, do: Callable[[], None]) -> Callable[[str], None]:
    """A hook for `failpoints.arm`: acts once, when the next message is the one that commits the transition."""
    point, is_done = f"{transition}.{'before' if is_statement else 'written'}", threading.Event()

    def hook(name: str) -> None:
        if name == point and not is_done.is_set():
            is_done.set()
            do()

    return hook
