"""Maintenance: what a lost wake-up, a dead worker or the passing of time left behind.

One bounded pass over each kind of row, each row in its own transaction. What somebody holds is passed over; an error on
a row is recorded on it, and it goes to the end of the queue. Any number of passes may run at once, anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from operator import itemgetter

from turnkit_django import conf
from turnkit_django.core.backoff import recovery_delay
from turnkit_django.core.content import Json
from turnkit_django.dispatch.base import get_dispatcher
from turnkit_django.engine import deliveries
from turnkit_django.engine.run import error
from turnkit_django.engine.scanning import Scan, Subject, Tally, handle_each, log, note
from turnkit_django.store import connections, reads, transitions
from turnkit_django.store.moves import giving_way


@dataclass(slots=True)
class Counts:
    """What one pass did.

    Attributes:
        recovered: Turns taken from dead workers: pending again, failed, or stale.
        readied: Waiting turns whose time had come.
        overdue: Turns that failed because their deadline had passed.
        delivered: Messages put into the transcripts of their conversations.
        continued: Conversations with unread messages for which a turn was made.
        woken: Wake-ups sent for due turns that had none.
        unsent: Wake-ups that could not be sent; the log says why.
        errors: Rows that could not be handled; each is logged and set aside.
    """

    recovered: int = 0
    readied: int = 0
    overdue: int = 0
    delivered: int = 0
    continued: int = 0
    woken: int = 0
    unsent: int = 0
    errors: int = 0

    @property
    def total(self) -> int:
        return sum(getattr(self, item.name) for item in fields(self))


def run_pass(*, batch: int) -> Counts:
    """Handle at most `batch` rows of each kind; waits for nobody who holds a row."""
    connections.require_no_transaction("maintenance")
    with giving_way():
        counts = _counted(batch)
    connections.release()
    return counts


def _counted(batch: int) -> Counts:
    late = error("BudgetError", "turn timed out")
    recovered = handle_each(
        reads.expired,
        lambda found: recover(*found),
        lambda found, problem: _failed(found[0], problem),
        key=itemgetter(0),
        batch=batch,
    )
    recounted = _each(reads.miscounted, transitions.recount, batch)  # before `ready`: they may miss nothing now
    readied = _each(reads.ready, transitions.ready, batch)
    overdue = _each(reads.overdue, lambda turn_id: transitions.give_up(turn_id, error=late), batch)
    delivered = deliveries.deliver_pending(limit=batch)
    continued = deliveries.continue_lanes(limit=batch)
    woken, unsent = _wake(batch)
    looks = (recovered, recounted, readied, overdue, delivered, continued, woken)
    return Counts(
        recovered=recovered.done,
        readied=readied.done,
        overdue=overdue.done,
        delivered=delivered.done,
        continued=continued.done,
        woken=woken.done - unsent,
        unsent=unsent,
        errors=sum(look.errors for look in looks),
    )


def _each(scan: Scan[str], handle: Callable[[str], object], batch: int) -> Tally:
    return handle_each(scan, handle, _failed, key=str, batch=batch)


def note_pass() -> None:
    """Let `check --deploy` see that somebody runs maintenance. Best effort: Redis may be away, or not used at all."""
    with suppress(Exception):
        get_dispatcher().note_reconcile()


def _wake(batch: int) -> tuple[Tally, int]:
    """All in one, since each sending may take a second; one by one if a row among them cannot be written.

    What was woken, and how many of the wake-ups could not be sent.
    """
    before = reads.unsent_count()
    try:
        woken = Tally(done=transitions.wake_due(limit=batch) or 0)
    except Exception:
        woken = _each(reads.unwoken_ids, _wake_one, batch)
    return woken, min(reads.unsent_count() - before, woken.done)


def _wake_one(turn_id: str) -> int | None:
    return transitions.wake_due(limit=1, only=turn_id) or None


def recover(turn_id: str, token: str, attempts: int, *, is_dead: bool = False) -> object:
    """Take a turn from the worker that claimed it under `token`.

    Args:
        attempts: Deaths so far, for the back-off.
        is_dead: Whether the worker is known to be gone before its lease has ended.
    """
    return transitions.recover(
        turn_id,
        token=token,
        max_recoveries=conf.get().MAX_RECOVERIES,
        seconds=recovery_delay(attempts + 1),
        is_dead=is_dead,
    )


def _failed(turn_id: str, problem: Exception) -> bool:
    log("handled", problem, _subject(turn_id))
    return set_aside(turn_id, problem)


def set_aside(turn_id: str, problem: BaseException) -> bool:
    """Look at the row again later, and say on it why; whether that could be said."""

    def write(why: Json, seconds: float) -> object:
        return transitions.set_aside(turn_id, error=why, seconds=seconds)

    return note(problem, write, _subject(turn_id))


def _subject(turn_id: str) -> Subject:
    return Subject(f"turn {turn_id}", {"turn_id": turn_id})
