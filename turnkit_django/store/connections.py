"""The database connection of this thread: which one, when it is given back, and which of its errors pass."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq import TransactionStatus

from turnkit_django.errors import StateError

_REPEATABLE = frozenset({"40001", "40P01", "55P03"})  # serialization failure, deadlock, lock timeout
_LOST = ("08", "57P")  # connection exceptions, operator intervention

_LOCK_TIMEOUT = "55P03"
_BEGUN = frozenset({TransactionStatus.ACTIVE, TransactionStatus.INTRANS, TransactionStatus.INERROR})


_READ_COMMITTED = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; "
"""Whatever the server's default is: a move locks, and then looks at what it has locked."""


def _bounds(lock_seconds: float) -> str:
    return (
        f"SET LOCAL lock_timeout = '{lock_seconds * 1000:.0f}ms'; SET LOCAL statement_timeout = '60s'; "
        "SET LOCAL idle_in_transaction_session_timeout = '60s'; "
    )


BOUNDS = _READ_COMMITTED + _bounds(lock_seconds=10)
"""Put before the first statement of a worker's transaction, in the same message: no round trip, nothing that outlives
the transaction, so it works behind a transaction pooler."""


def alias() -> str:
    """The database that rows are written to, and read from where truth matters."""
    from turnkit_django.models import Turn

    return router.db_for_write(Turn) or DEFAULT_DB_ALIAS


def current() -> BaseDatabaseWrapper:
    return connections[alias()]


def in_application_transaction() -> bool:
    """Whether a transaction is open that is not just the one a Django TestCase wraps around a test."""
    blocks = current().atomic_blocks
    return _is_open(current()) if not blocks else not getattr(blocks[-1], "_from_testcase", False)


def require_no_transaction(what: str) -> None:
    """Refuse to start work that would keep the application's transaction open during model calls.

    Raises:
        StateError: Names `what` and the ways out.
    """
    if in_application_transaction():
        raise StateError(
            f"{what} cannot run inside a transaction that the application opened (`transaction.atomic`, "
            "ATOMIC_REQUESTS): it would stay open during model calls. Use `submit`, which commits with your "
            "transaction, or run outside of it (`transaction.non_atomic_requests` for a view)"
        )


def release() -> None:
    """Give this thread's connection back (to its pool, if there is one) before a slow call.

    Never inside a transaction: closing there would roll it back without a word.
    """
    connection = current()
    if not connection.in_atomic_block:
        connection.close()


def open_blocks() -> dict[str, int | None]:
    """How deep this thread stands in atomic blocks, by database; None where a transaction is open without Django's."""
    return {each.alias: _depth(each) for each in connections.all(initialized_only=True)}


def roll_back_since(before: Mapping[str, int | None]) -> bool:
    """Roll back what foreign code has begun since `open_blocks` and left open; whether there was anything.

    What is written next would else be part of it, and go with it when the connection is given back.
    """
    found = [_rolled_back(each, before.get(each.alias, 0)) for each in connections.all(initialized_only=True)]
    return any(found)


def _rolled_back(connection: BaseDatabaseWrapper, depth: int | None) -> bool:
    if depth is None:
        return False
    found = len(connection.atomic_blocks) > depth
    while len(connection.atomic_blocks) > depth:
        connection.atomic_blocks[-1].__exit__(StateError, StateError("left open"), None)
    if not connection.in_atomic_block:
        found = found or _status(connection) in _BEGUN
        if _is_open(connection) or _status(connection) == TransactionStatus.UNKNOWN:
            connection.close()  # a dead one too: the next write would find out late
    return found


def _depth(connection: BaseDatabaseWrapper) -> int | None:
    return len(connection.atomic_blocks) if connection.in_atomic_block or not _is_open(connection) else None


def _is_open(connection: BaseDatabaseWrapper) -> bool:
    """Whether a transaction is open outside Django's blocks, or `set_autocommit(False)` opens one at each statement."""
    return connection.connection is not None and (not connection.autocommit or _status(connection) in _BEGUN)


def _status(connection: BaseDatabaseWrapper) -> TransactionStatus | None:
    """Where PostgreSQL stands; None without a connection, or with another kind of database."""
    info = getattr(connection.connection, "info", None)
    return getattr(info, "transaction_status", None)


def drop() -> None:
    """Close this thread's lost connection, and those of its pool that were lost with it.

    Without `CONN_HEALTH_CHECKS` a pool would hand out every dead connection before it makes a new one.
    """
    connection = current()
    connection.close()
    pool = getattr(connection, "pool", None)
    if pool is not None:
        pool.check()


def is_lost(error: Exception) -> bool:
    """Whether the connection is gone, so that what it last did is not known."""
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    state = getattr(error.__cause__, "sqlstate", None)
    return state is None or state.startswith(_LOST)


def is_repeatable(error: Exception) -> bool:
    """Whether the same transaction may succeed when it is run again."""
    return is_lost(error) or getattr(error.__cause__, "sqlstate", None) in _REPEATABLE


def is_lock_timeout(error: Exception) -> bool:
    return getattr(error.__cause__, "sqlstate", None) == _LOCK_TIMEOUT


@contextmanager
def bounded(*, lock_seconds: float = 10) -> Iterator[None]:
    """Bound the locks and statements of the transaction that begins inside."""
    with _beginning(_READ_COMMITTED + _bounds(lock_seconds)):
        yield


@contextmanager
def unbounded() -> Iterator[None]:
    """The same for a person's move, whose patience is the application's."""
    with _beginning(_READ_COMMITTED):
        yield


@contextmanager
def _beginning(words: str) -> Iterator[None]:
    """Put the words before the first statement inside, unless a transaction is open already."""
    connection = current()
    if connection.in_atomic_block:
        yield
        return
    with connection.execute_wrapper(_first_statement(words)):
        yield


def _first_statement(bounds: str) -> Callable[..., Any]:
    is_first = True

    def run(execute: Callable[..., Any], sql: str, params: Any, many: Any, context: dict[str, Any]) -> Any:
        nonlocal is_first
        if not is_first:
            return execute(sql, params, many, context)
        is_first = False
        result = execute(bounds + sql, params, many, context)
        to_last_result(context["cursor"])
        return result

    return run


def to_last_result(cursor: Any) -> None:
    """Move to the result of the last statement of a message."""
    while cursor.nextset():
        pass


@cache  # one hook a process
def forget_after_fork() -> None:
    """In a forked child, drop inherited connections and pools without closing them: the parent still uses them."""
    os.register_at_fork(after_in_child=_forget)


def _forget() -> None:
    for connection in connections.all(initialized_only=True):
        connection.connection = None
        # A pool's threads do not survive a fork; the child makes its own.
        getattr(type(connection), "_connection_pools", {}).clear()


def pause_before_repeat(attempt: int) -> None:
    """Let a restarting server or a competing transaction finish: 20 ms, then 100 ms."""
    threading.Event().wait(0.02 * 5**attempt)
