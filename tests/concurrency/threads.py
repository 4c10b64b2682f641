"""Threads with connections of their own, and a look at who waits for whom."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from django.db import connection, connections, transaction

from tests.waiting import wait_until
from turnkit_django import failpoints

T = TypeVar("T")


def closing(work: Callable[[], T]) -> Callable[[], T]:
    """The work, after which the thread gives its connection back."""

    def run() -> T:
        try:
            return work()
        finally:
            connections.close_all()

    return run


@contextmanager
def observer() -> Iterator[psycopg.Connection[Any]]:
    """A third connection, outside of Django: inside a transaction the activity of others is a frozen picture."""
    values = {name: value for name, value in connection.get_connection_params().items() if name in _CONNECTING}
    with psycopg.connect(**values, autocommit=True) as watching:
        yield watching


_CONNECTING = {"dbname", "host", "port", "user", "password"}


def blocked(watching: psycopg.Connection[Any]) -> int:
    """How many connections to this database wait for a lock."""
    found = watching.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ).fetchone()
    return int(found[0]) if found else 0


def alone(watching: psycopg.Connection[Any]) -> None:
    """Wait until nobody else is connected to this database: a backend that leaves has told all it counted."""

    def others() -> list[Any]:
        connection.close()
        connection.close_pool()
        return watching.execute(
            "SELECT pid, query FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        ).fetchall()

    wait_until(lambda: not others(), others)


def deadlocks(watching: psycopg.Connection[Any]) -> int:
    found = watching.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
    return int(found[0]) if found else -1


class Held:
    """Work whose transaction stays open until it is told to commit.

    Args:
        work: Moves that join a transaction; or, with `point`, a worker's move, which has its own.
        point: Where the move stops, inside its transaction.
    """

    def __init__(self, work: Callable[[], object], *, point: str = "") -> None:
        self._work, self._point = work, point
        self._reached, self._leave = threading.Event(), threading.Event()
        self._thread = 0

    def _run(self) -> object:
        self._thread = threading.get_ident()
        if self._point:
            return self._work()
        with transaction.atomic():
            result = self._work()
            self._stop()
        return result

    def _stop(self) -> None:
        self._reached.set()
        assert self._leave.wait(30)

    def _at(self, name: str) -> None:
        if name == self._point and threading.get_ident() == self._thread:
            self._stop()

    @contextmanager
    def open(self) -> Iterator[Future[object]]:
        """In the block the transaction holds its locks; afterwards it has committed."""
        failpoints.arm(self._at)
        with ThreadPoolExecutor(1) as pool:
            mine = pool.submit(closing(self._run))
            try:
                wait_until(lambda: self._reached.is_set() or mine.done(), "the work has not got there")
                assert not mine.done(), f"it did not stop: {mine.exception() or mine.result()!r}"
                yield mine
            finally:
                self._leave.set()
                failpoints.arm(None)
            mine.result(30)

    def and_behind_it(self, other: Callable[[], T]) -> Future[T]:
        """Run `other` until it waits for a lock, then let go; both are over when this returns."""
        with ThreadPoolExecutor(1) as pool, observer() as watching, self.open():
            theirs = pool.submit(closing(other))
            wait_until(lambda: blocked(watching) or theirs.done(), "nobody waits for a lock")
            assert not theirs.done(), f"it did not wait: {theirs.exception() or theirs.result()!r}"
        return theirs


@contextmanager
def wide_pool(size: int) -> Iterator[None]:
    """Connections for that many threads at once."""
    options = connection.settings_dict["OPTIONS"]
    before = options["pool"]
    _set_pool(options, {**before, "max_size": size})
    try:
        yield
    finally:
        _set_pool(options, before)


def _set_pool(options: dict[str, Any], pool: dict[str, Any]) -> None:
    connection.close()
    connection.close_pool()
    options["pool"] = pool
