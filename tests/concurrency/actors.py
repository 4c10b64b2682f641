"""Two threads whose moves can be stopped between their locks, and a database that is put back to a moment."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, cast
from zlib import crc32

import psycopg
from django.apps import apps
from django.db import OperationalError, connection, transaction

from tests.concurrency.family import Family, Move
from tests.concurrency.threads import closing, observer
from turnkit_django import failpoints
from turnkit_django.store.moves import STATEMENTS

WRITTEN = -1
"""The stop at which a move has all its locks and has written everything."""
_LOCKING = re.compile(r'FOR NO KEY UPDATE|pg_advisory_xact_lock|^UPDATE "turnkit_(delivery|toolexecution|wait)"')
_SECONDS = 30


class Actor:
    """A thread with a connection of its own.

    Attributes:
        locking: How many statements that lock its last move has sent.
        deadlocks: How many of them were chosen as victims.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self.is_there, self.has_ended = threading.Event(), threading.Event()
        self._go_on = threading.Event()
        self._stop = self._thread = 0
        self._point = ""
        self.pid = self.locking = self.deadlocks = 0

    def begin(self, move: Move, family: Family, *, stop: int = 0) -> Future[object]:
        """Make a move that stops before its statement that locks with that number, or at WRITTEN; 0: nowhere."""
        for each in (self.is_there, self.has_ended, self._go_on):
            each.clear()
        self._stop, self._point, self.locking, self.pid = stop, f"{move.transition}.written", 0, 0
        return self._pool.submit(self._run, move, family)

    def go_on(self) -> None:
        self._go_on.set()

    def close(self) -> None:
        self.go_on()
        self._pool.submit(closing(lambda: None)).result(_SECONDS)
        self._pool.shutdown()

    def reach(self, point: str) -> None:
        if threading.get_ident() == self._thread and self._stop == WRITTEN and point == self._point:
            self._halt()

    def _run(self, move: Move, family: Family) -> object:
        self._thread = threading.get_ident()
        connection.ensure_connection()
        self.pid = connection.connection.info.backend_pid
        try:
            with connection.execute_wrapper(self._watch):
                return self._whole(move, family) if move.transition in STATEMENTS else move.act(family)
        finally:
            self.has_ended.set()
            self.is_there.set()

    def _whole(self, move: Move, family: Family) -> object:
        """A single statement keeps its locks while the transaction around it is open."""
        with transaction.atomic():
            vars(connection.atomic_blocks[-1])["_from_testcase"] = True  # no application's: worker's moves join it
            result = move.act(family)
            if self._stop == WRITTEN:
                self._halt()
        return result

    def _halt(self) -> None:
        if not self._go_on.is_set():
            self.is_there.set()
            assert self._go_on.wait(_SECONDS)

    def _watch(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if _LOCKING.search(sql):
            self.locking += 1
            if self.locking == self._stop:
                self._halt()
        try:
            return execute(sql, params, many, context)
        except OperationalError as error:
            self.deadlocks += getattr(error.__cause__, "sqlstate", "") == "40P01"
            raise


class Stage:
    """Where moves meet.

    Attributes:
        first, second: The threads; the first one can be stopped.
    """

    def __init__(self, watching: psycopg.Connection[Any], family: Family) -> None:
        self.first, self.second, self.family = Actor(), Actor(), family
        self._watching = watching
        self._tables = [model._meta.db_table for model in apps.get_models() if model.__module__.startswith(_OWNERS)]
        self._rows = {table: self._copied(table) for table in self._tables}
        found = sorted({found[0] for rows in self._rows.values() for found in _ID.finditer(rows.decode())})
        self._names = {name: f"{name.partition('_')[0]} {place}" for place, name in enumerate(found)}

    def _copied(self, table: str) -> bytes:
        with self._watching.cursor().copy(f"COPY {table} TO STDOUT") as copy:
            return b"".join(copy)

    def reset(self) -> None:
        """Put every row back to what it was at the beginning."""
        with self._watching.transaction():
            self._watching.execute("; ".join(f"DELETE FROM {table}" for table in self._tables))
            for table, rows in self._rows.items():
                if rows:
                    with self._watching.cursor().copy(f"COPY {table} FROM STDIN") as copy:
                        copy.write(rows)

    def picture(self) -> str:
        """All rows, where times, new ids and new tokens look alike, and it does not matter when a wake-up was noted."""
        parts = (f"SELECT '{table}', to_jsonb(t) - 'wake_sent_at' FROM {table} t" for table in self._tables)
        rows = self._watching.execute(" UNION ALL ".join(parts)).fetchall()
        return "\n".join(sorted(self._plain(json.dumps(row, sort_keys=True)) for row in rows))

    def _plain(self, row: str) -> str:
        named = _ID.sub(lambda found: self._names.get(found[0], f"new {found[1]}"), row)
        return _TOKEN.sub("token", _TIME.sub("time", named))

    def standing(self) -> str:
        """In which states turns and messages are, whichever they are and however many."""
        turns = "SELECT DISTINCT status, pending_dependencies > 0 FROM turnkit_turn ORDER BY 1, 2"
        sent = "SELECT DISTINCT delivered_at IS NULL, receiving_turn_id IS NULL FROM turnkit_delivery ORDER BY 1, 2"
        return str([self._watching.execute(text).fetchall() for text in (turns, sent)])

    def alone(self, move: Move) -> object:
        """One move with nobody else; what it raised, if it did."""
        return self.first.begin(move, self.family).exception(_SECONDS)

    def locking(self, move: Move) -> int:
        """How many statements that lock it sends when it is alone."""
        self.reset()
        self.alone(move)
        return self.first.locking

    def count_of_deadlocks(self) -> int:
        """Since the last look."""
        found = self.first.deadlocks + self.second.deadlocks
        self.first.deadlocks = self.second.deadlocks = 0
        return found

    def holding(self, move: Move, stop: int = WRITTEN) -> bool:
        """Begin a move and wait until it stands at its stop; whether it came to that."""
        self._begun = self.first.begin(move, self.family, stop=stop)
        assert self.first.is_there.wait(_SECONDS)
        return not self.first.has_ended.is_set()

    def let_go(self) -> BaseException | None:
        """Let the held move end; what it raised."""
        self.first.go_on()
        return self._begun.exception(_SECONDS)

    def behind(self, move: Move) -> tuple[bool, Future[object]]:
        """Begin a move beside the held one, until it waits or has ended; whether it waits."""
        theirs = self.second.begin(move, self.family)
        while not self.second.has_ended.wait(0.001):
            if self.second.pid and self._is_blocked(self.second.pid):
                return True, theirs
        return False, theirs

    def _is_blocked(self, pid: int) -> bool:
        row = self._watching.execute("SELECT pg_blocking_pids(%s) <> '{}'", [pid]).fetchone()
        return bool(cast("tuple[Any, ...]", row)[0])

    def taken(self) -> set[str]:
        """Which of the family's locks somebody has."""
        return {name for name, probe in self._probes() if not self._is_free(probe)}

    def _probes(self) -> Iterator[tuple[str, str]]:
        family = self.family
        yield "GRAPH", f"SELECT pg_try_advisory_xact_lock({0x77616974}, 0)"
        root = family.turns.get("parent", family.turns["turn"])
        yield "ROOT", f"SELECT pg_try_advisory_xact_lock({0x7475726E}, {crc32(root.pk.encode()) - (1 << 31)})"
        for rows in (family.turns, family.lanes, family.deliveries):
            for name, row in rows.items():
                yield name, f"{row._meta.db_table} WHERE id = '{row.pk}'"
        for execution in family.calls.values():
            yield "calls", f"turnkit_toolexecution WHERE id = '{execution}'"

    def _is_free(self, probe: str) -> bool:
        text = probe if probe.startswith("SELECT") else f"SELECT 1 FROM {probe} FOR NO KEY UPDATE SKIP LOCKED"
        found = self._watching.execute(text).fetchall()
        return found in ([(1,)], [(True,)])


_OWNERS = ("turnkit_django.", "tests.testapp.")
_ID = re.compile(r"\b(conv|turn|msg|tool|dlv|wait)_[0-9A-Z]{26}\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.+]+")
_TOKEN = re.compile(r"\b[0-9a-f]{32}\b")


@contextmanager
def stage(family: Family) -> Iterator[Stage]:
    with observer() as watching:
        found = Stage(watching, family)
        failpoints.arm(found.first.reach)
        try:
            yield found
        finally:
            failpoints.arm(None)
            found.first.close()
            found.second.close()
