"""How a move runs: its transaction, its failpoints, and what happens when the database interrupts it.

People's moves join an open transaction. Workers' moves carry a `Claim`, have a bounded transaction of their own, and,
after a lost connection, first look whether they had committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict
from functools import partial, wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, cast, overload

from django.core.exceptions import ObjectDoesNotExist
from django.db import DatabaseError, InterfaceError, OperationalError, transaction

from turnkit_django.core.events import Event
from turnkit_django.errors import LostClaim
from turnkit_django.failpoints import reach
from turnkit_django.models import Turn
from turnkit_django.store import connections, outbox, reads
from turnkit_django.store.claims import CallGone, Claim, Claimed
from turnkit_django.store.locks import Locks, MissedNeighbour
from turnkit_django.store.outbox import News

_P = ParamSpec("_P")
_R = TypeVar("_R")

TRANSITIONS: dict[str, Callable[..., object]] = {}
"""Every function that writes rows, by name: the crash matrix and a table of the docs are made from it."""
STATEMENTS: dict[str, str] = {}
"""Those of them that are one SQL statement, with its text."""

_TRIES = 3
_MISSES = 5  # in a row; each takes somebody who attaches a wait in the few microseconds between a look and a lock
_PATIENCE_SECONDS = 1  # of a worker's maintenance with a row that somebody holds: other rows wait meanwhile
_BRIEF_SECONDS = 0.01  # of a pass with what it needs behind a row that nobody held

_is_giving_way: ContextVar[bool] = ContextVar("is_giving_way", default=False)


@contextmanager
def giving_way() -> Iterator[None]:
    """Maintenance moves inside wait for nobody: a row that somebody holds is skipped, for a later pass."""
    token = _is_giving_way.set(True)
    try:
        yield
    finally:
        _is_giving_way.reset(token)


def transition(move: Callable[Concatenate[Locks, _P], _R]) -> Callable[_P, _R]:
    """A person's move: joins an open transaction; alone, it is repeated after a passing error.

    A repeated move must recognise what its first try stored by the ids it was given.
    """

    @wraps(move)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        def once(news: News) -> _R:
            with connections.unbounded(), reads.naming(_subject(*args)):
                return _in_transaction(move.__name__, lambda: move(Locks(), *args, **kwargs), news)

        return cast("_R", _recognised(once))

    TRANSITIONS[move.__name__] = run
    return run


def maintenance(move: Callable[Concatenate[Locks, _P], _R | None]) -> Callable[_P, _R | None]:
    """A move of maintenance. None: nothing to do, the row is gone since the scan, or a later pass will look again
    because somebody holds it just now.
    """

    @wraps(move)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R | None:
        skips = _is_giving_way.get()

        def once(news: News) -> _R | None:
            try:
                with connections.bounded(lock_seconds=_BRIEF_SECONDS if skips else _PATIENCE_SECONDS):
                    locks = Locks(skips_held=skips)
                    return _in_transaction(move.__name__, lambda: move(locks, *args, **kwargs), news)
            except OperationalError as error:
                if connections.is_lock_timeout(error):
                    return None
                raise
            except ObjectDoesNotExist:
                return None

        return _recognised(once)

    TRANSITIONS[move.__name__] = run
    return run


@overload
def worker_move(move: Callable[Concatenate[Locks, Claim, _P], None]) -> Callable[Concatenate[Claim, _P], None]: ...


@overload
def worker_move(
    *, ends_claim: Literal[False]
) -> Callable[[Callable[Concatenate[Locks, Claim, _P], _R]], Callable[Concatenate[Claim, _P], tuple[Claim, _R]]]: ...


def worker_move(move: Callable[..., Any] | None = None, *, ends_claim: bool = True) -> Any:
    """A worker's move under its claim, whose revision it counts up.

    With `ends_claim=False` the turn stays claimed, and the move returns the claim with its new revision and its result.
    """
    if move is None:
        return partial(worker_move, ends_claim=ends_claim)

    @wraps(move)
    def run(claim: Claim, /, *args: Any, **kwargs: Any) -> object:
        connections.require_no_transaction(f"turn {claim.turn_id}")

        news = News()

        def once() -> bool:
            nonlocal news
            news = News()
            with connections.bounded():
                _in_transaction(move.__name__, lambda: move(Locks(), claim, *args, **kwargs), news)
            return True

        if _repeated(once, unless=lambda: has_committed(claim, ends_claim=ends_claim), waits_for_locks=True) is None:
            news.send_after_commit()  # nobody has heard of the commit, so nothing was sent at it
        return None if ends_claim else (claim.after_write(), news.result)

    TRANSITIONS[move.__name__] = run
    return run


def claiming(move: Callable[Concatenate[Locks, _P], _R]) -> Callable[Concatenate[Callable[[], _R | None], _P], _R]:
    """A move that makes claims. Its first argument finds, after a lost connection, what had been claimed unheard."""

    @wraps(move)
    def run(found: Callable[[], _R | None], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        connections.require_no_transaction("a turn")

        news = News()

        def once() -> _R:
            nonlocal news
            news = News(is_held=True)
            with connections.bounded(), reads.naming(_subject(*args)):
                return _in_transaction(move.__name__, lambda: move(Locks(), *args, **kwargs), news)

        claimed = _repeated(once, unless=lambda: found() is not None)
        if claimed is None:
            claimed = cast("_R", found())
        _hand_over(news, claimed)
        return claimed

    TRANSITIONS[move.__name__] = run
    return run


def statement(
    text: str, *, tells: Callable[Concatenate[Claim, dict[str, Any], _P], list[Event]]
) -> Callable[[Callable[_P, dict[str, Any]]], Callable[Concatenate[Claim, _P], Claim]]:
    """A worker's move that is one statement of `store/sql.py`; the decorated function makes its parameters.

    The move returns the claim with its new revision.

    Args:
        tells: Makes the events, of the claim, the parameters and the arguments of the move.
    """

    def decorate(parameters: Callable[_P, dict[str, Any]]) -> Callable[Concatenate[Claim, _P], Claim]:
        name = parameters.__name__

        @wraps(parameters)
        def run(claim: Claim, /, *args: _P.args, **kwargs: _P.kwargs) -> Claim:
            connections.require_no_transaction(f"turn {claim.turn_id}")
            made = parameters(*args, **kwargs)
            values = asdict(claim) | made

            def once() -> list[tuple[Any, ...]]:
                reach(f"{name}.before")
                rows = fetched(text, values)
                if not rows and not has_committed(claim, ends_claim=False):
                    raise lost(claim)
                if rows and rows[0][1] != 1:
                    raise CallGone(f"{name} of {claim.turn_id}: its execution is not in a state for that", claim)
                reach(f"{name}.committed")
                return rows

            rows = _repeated(once, unless=lambda: has_committed(claim, ends_claim=False), waits_for_locks=True)
            News(*tells(claim, made, *args, **kwargs)).send_after_commit()
            is_pause_requested = rows[0][2] if rows else reads.is_pause_requested(claim.turn_id)
            return claim.after_write(is_pause_requested=is_pause_requested)

        TRANSITIONS[name] = run
        STATEMENTS[name] = text
        return run

    return decorate


def _hand_over(news: News, claimed: object) -> None:
    """The events of each claim go with it to its holder."""
    for one in claimed if isinstance(claimed, list) else [claimed]:
        if isinstance(one, Claimed):
            one.news.events += [event for event in news.events if event.turn_id == one.turn.pk]


def _subject(first: object, *_: object) -> object:
    """What a move is about: an id, or the conversation of a row that is not stored yet."""
    return getattr(first, "conversation_id", getattr(first, "source_id", first))


def _in_transaction(name: str, move: Callable[[], _R], news: News) -> _R:
    with transaction.atomic(using=connections.alias()):
        reach(f"{name}.before")
        with outbox.collecting(news):
            news.result = result = move()
        if not news.is_held:
            news.send_after_commit()
        if news.is_marked and news.events:
            news.transaction_id = _transaction_id()
        reach(f"{name}.written")
    reach(f"{name}.committed")
    return result


def _recognised(once: Callable[[News], _R]) -> _R | None:
    """Run a transaction up to three times, or once inside of another.

    A try that had committed unheard counts: its events are sent, and its result is the move's. The rows do not tell
    whether it had: somebody else may have done the same meanwhile. Its transaction id does.
    """
    if connections.current().in_atomic_block:
        return _started_over(lambda: once(News()))
    tries: list[News] = []

    def again() -> _R:
        tries.append(News(is_marked=True))
        return once(tries[-1])

    result = _repeated(again, unless=lambda: False)
    with suppress(DatabaseError, InterfaceError):  # events are not durable, and the move is done
        for news in tries[:-1]:
            if news.transaction_id is not None and _was_committed(news.transaction_id):
                news.send_after_commit()
                result = cast("_R", news.result)
    return result


def _transaction_id() -> str:
    with connections.current().cursor() as cursor:
        cursor.execute("SELECT pg_current_xact_id()::text")
        return str(cursor.fetchone()[0])


def _was_committed(transaction_id: str) -> bool:
    with connections.current().cursor() as cursor:
        cursor.execute("SELECT pg_xact_status(%s::xid8)", [transaction_id])
        return bool(cursor.fetchone()[0] == "committed")


def _repeated(once: Callable[[], _R], *, unless: Callable[[], bool], waits_for_locks: bool = False) -> _R | None:
    """Run a transaction up to three times. None: before a repeat it turned out to have committed unheard.

    With `waits_for_locks` a lock that somebody keeps does not count: a worker that has a result in hand and the claim
    in force, which `unless` looks at, has nothing better to do than to wait.
    """
    attempt, is_repeat = 1, False
    while True:
        try:
            # The look itself may meet a server that is still away: it counts as a try.
            return None if is_repeat and unless() else _started_over(once)
        except (DatabaseError, InterfaceError) as error:
            is_repeat = True
            if waits_for_locks and connections.is_lock_timeout(error):
                continue
            if attempt == _TRIES or not connections.is_repeatable(error):
                raise
            if connections.is_lost(error):
                connections.drop()
            connections.pause_before_repeat(attempt)
            attempt += 1


def _started_over(once: Callable[[], _R]) -> _R:
    """Run a transaction again while it finds, with its locks in hand, that it would have needed more of them."""
    for _ in range(_MISSES):
        with suppress(MissedNeighbour):
            return once()
    return once()


def fetched(text: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Run one statement, alone in its own bounded transaction if none is open; its rows."""
    connection = connections.current()
    with connection.cursor() as cursor:
        cursor.execute(text if connection.in_atomic_block else connections.BOUNDS + text, values)
        connections.to_last_result(cursor)
        return cast("list[tuple[Any, ...]]", cursor.fetchall())


def has_committed(claim: Claim, *, ends_claim: bool) -> bool:
    """Whether the write that was made under this revision is stored.

    Only a holder counts the revision up, so mine plus one is my write. A move that ends the claim leaves no token; a
    turn without one where the move would have kept it was taken, perhaps by somebody who has let go of it again.

    Raises:
        LostClaim: If somebody else has taken the turn.
    """
    rows = Turn.objects.using(connections.alias()).filter(pk=claim.turn_id)
    found = rows.values_list("claim_token", "revision").first()
    if found is None:
        raise erased(claim)
    token, revision = found
    if token == (None if ends_claim else claim.token) and revision == claim.revision + 1:
        return True
    if token == claim.token and revision == claim.revision:
        return False
    raise lost(claim)


def lost(claim: Claim) -> LostClaim:
    return LostClaim(f"turn {claim.turn_id} is no longer held under token {claim.token[:8]}…; nothing was written")


def erased(claim: Claim) -> LostClaim:
    return LostClaim(f"turn {claim.turn_id} was deleted while it ran; nothing was written")
