"""Maintenance: what a lost wake-up, a dead worker or the passing of time left behind.

One bounded pass over each kind of row, each row in its own transaction. An error on a row is recorded on it, backs it
off, and stops no other. Any number of passes may run at once, anywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields

from turnkit_django import conf
from turnkit_django.core.backoff import recovery_delay
from turnkit_django.dispatch.base import get_dispatcher
from turnkit_django.engine import deliveries
from turnkit_django.engine.run import error, said
from turnkit_django.store import connections, reads, transitions

logger = logging.getLogger("turnkit")

_SET_ASIDE_SECONDS = 60.0


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
    """Handle at most `batch` rows of each kind."""
    connections.require_no_transaction("maintenance")
    counts = Counts()
    for turn_id, token, attempts in reads.expired(limit=batch):
        counts.recovered += _handled(counts, turn_id, lambda: recover(turn_id, token, attempts))  # noqa: B023
    for turn_id in reads.miscounted(limit=batch):  # before `ready`, which goes on with those that now miss nothing
        _handled(counts, turn_id, lambda: transitions.recount(turn_id))  # noqa: B023
    for turn_id in reads.ready(limit=batch):
        counts.readied += _handled(counts, turn_id, lambda: transitions.ready(turn_id))  # noqa: B023
    for turn_id in reads.overdue(limit=batch):
        late = error("BudgetError", "turn timed out")
        counts.overdue += _handled(counts, turn_id, lambda: transitions.give_up(turn_id, error=late))  # noqa: B023
    _deliver(counts, batch)
    _wake(counts, batch)
    connections.release()
    return counts


def _deliver(counts: Counts, batch: int) -> None:
    delivered = deliveries.deliver_pending(limit=batch)
    continued = deliveries.continue_lanes(limit=batch)
    counts.delivered, counts.continued = delivered.done, continued.done
    counts.errors += delivered.errors + continued.errors


def note_pass() -> None:
    """Let `check --deploy` see that somebody runs maintenance. Best effort: Redis may be away, or not used at all."""
    with suppress(Exception):
        get_dispatcher().note_reconcile()


def _wake(counts: Counts, batch: int) -> None:
    """All in one, since each sending may take a second; one by one if a row among them cannot be written."""
    before = reads.unsent_count()
    try:
        counts.woken = transitions.wake_due(limit=batch) or 0
    except Exception:
        for turn_id in list(reads.unwoken().values_list("pk", flat=True)[:batch]):
            counts.woken += _handled(counts, turn_id, lambda: _wake_one(turn_id))  # noqa: B023
    counts.unsent = min(reads.unsent_count() - before, counts.woken)
    counts.woken -= counts.unsent


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


def _handled(counts: Counts, turn_id: str, handle: Callable[[], object]) -> int:
    try:
        return int(handle() is not None)
    except Exception as problem:
        _log("handled", turn_id, problem)
        counts.errors += 1
        set_aside(turn_id, problem)
        return 0


def set_aside(turn_id: str, problem: BaseException) -> None:
    """Look at the row again later, and say on it why."""
    try:
        why = error(type(problem).__name__, said(problem))
        transitions.set_aside(turn_id, error=why, seconds=_SET_ASIDE_SECONDS)
    except Exception as worse:
        _log("set aside", turn_id, worse)


def _log(what: str, turn_id: str, problem: Exception) -> None:
    told = {"event": "reconcile.error", "turn_id": turn_id}
    logger.error("reconcile: %s could not be %s: %s", turn_id, what, conf.clean_traceback(problem), extra=told)
