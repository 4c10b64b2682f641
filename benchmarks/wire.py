"""A wire between workers and PostgreSQL that counts what the server answers.

What a message holds differs between the simple and the extended protocol. The answers are alike: the server says
CommandComplete for each statement, with its kind, and ReadyForQuery once for each round trip.
"""

from __future__ import annotations

import socket
import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path

_SOCKET = ".s.PGSQL.5432"
_CHUNK = 65536
_TRANSACTION_WORDS = frozenset({b"BEGIN", b"COMMIT", b"ROLLBACK", b"SAVEPOINT", b"RELEASE"})


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the server has answered.

    Attributes:
        round_trips: Times that the client waited for it.
        statements: Statements that it ran, those that follow included.
        transaction_control: BEGIN, COMMIT and the like.
        transactions: Ends of transactions, of a single statement or of many; those that only read included.
    """

    round_trips: int = 0
    statements: int = 0
    transaction_control: int = 0
    transactions: int = 0

    def __sub__(self, before: Traffic) -> Traffic:
        return Traffic(*(getattr(self, name.name) - getattr(before, name.name) for name in fields(Traffic)))


class Answers:
    """Reads one connection's answers, in pieces as they come, and counts them."""

    def __init__(self) -> None:
        self._rest = b""
        self._statements = self._control = 0
        self._is_started = False

    def read(self, piece: bytes) -> Traffic:
        """What this piece adds."""
        self._rest += piece
        found = Traffic()
        place = 0
        while len(self._rest) - place >= 5:
            kind, length = struct.unpack_from("!ci", self._rest, place)
            if len(self._rest) - place <= length:
                break
            found = _sum(found, self._counted(kind, self._rest[place + 5 : place + 1 + length]))
            place += 1 + length
        self._rest = self._rest[place:]
        return found

    def _counted(self, kind: bytes, body: bytes) -> Traffic:
        if kind == b"C":
            self._statements += 1
            self._control += body.rstrip(b"\0").split()[0] in _TRANSACTION_WORDS
            return Traffic()
        if kind != b"Z":
            return Traffic()
        if not self._is_started:  # the answer to the start-up message
            self._is_started = True
            return Traffic()
        is_end = body == b"I" and self._statements > 0
        found = Traffic(1, self._statements, self._control, int(is_end))
        self._statements = self._control = 0
        return found


def _sum(one: Traffic, other: Traffic) -> Traffic:
    return Traffic(*(getattr(one, name.name) + getattr(other, name.name) for name in fields(Traffic)))


@dataclass
class Wire:
    """Attributes:
    folder: Holds the socket to connect to.
    """

    folder: Path
    _server: str
    _total: Traffic = field(default_factory=Traffic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def traffic(self) -> Traffic:
        return self._total

    def accept_for_ever(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            server.connect(self._server)
            threading.Thread(target=_pump, args=(client, server), daemon=True).start()
            answers = Answers()
            while piece := server.recv(_CHUNK):
                found = answers.read(piece)
                with self._lock:
                    self._total = _sum(self._total, found)
                client.sendall(piece)
            client.shutdown(socket.SHUT_RDWR)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(_CHUNK):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def open_wire(server_folder: Path) -> Iterator[Wire]:
    """Connections to the wire's folder reach the server in `server_folder`."""
    with tempfile.TemporaryDirectory(prefix="wire-") as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/{_SOCKET}")
        listener.listen()
        wire = Wire(Path(folder), f"{server_folder}/{_SOCKET}")
        threading.Thread(target=wire.accept_for_ever, args=(listener,), daemon=True).start()
        try:
            yield wire
        finally:
            listener.shutdown(socket.SHUT_RDWR)
