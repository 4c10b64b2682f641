"""Wake-ups of turns: sent after the commit, noted on the row, and sent again when they were lost."""

from __future__ import annotations

from collections.abc import Iterable

from turnkit_django.core.states import TurnState
from turnkit_django.models import Turn
from turnkit_django.models.querysets import ClockTime
from turnkit_django.store import outbox, reads
from turnkit_django.store.locks import Locks, idle_head
from turnkit_django.store.moves import maintenance
from turnkit_django.store.transitions.writes import move_turn, turn_rows


@maintenance
def wake_due(locks: Locks, *, limit: int, only: str | None = None) -> int:
    """PENDING → PENDING. Send the wake-ups that due heads of lanes lack, or that of one; how many."""
    silent = reads.unwoken()
    found = locks.idle_turns(silent if only is None else silent.filter(pk=only), limit=limit)
    wake_turns(*found)
    return len(found)


@maintenance
def unsent(locks: Locks, turn_ids: Iterable[str]) -> None:
    """PENDING → PENDING. A wake-up could not be sent: let reconcile send it without waiting for its lifetime."""
    for turn in locks.turns(turn_rows().filter(pk__in=list(turn_ids), status=TurnState.PENDING)):
        move_turn(turn, TurnState.PENDING, wake_sent_at=None)


def wake_lane(conversation_id: str) -> None:
    """The lane may have become free: wake a worker for its head.

    The head's row is locked after the moved turn's, whatever their ids, and passed over if somebody else has locked it:
    see `docs/locking.md`.
    """
    if (head := idle_head(conversation_id)) is not None:
        wake_turns(head)


def wake_turns(*turns: Turn) -> None:
    for turn in turns:
        move_turn(turn, turn.status, wake_sent_at=ClockTime())
    request_wake(*(turn.pk for turn in turns))


def request_wake(*turn_ids: str) -> None:
    """After the commit, send the wake-ups that were noted on these rows."""
    outbox.wake(*turn_ids, on_failure=unsent)
