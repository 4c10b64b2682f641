"""People's controls of a turn, or of it and all that its calls have started: pause, resume, cancel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from turnkit_django.core.content import Json
from turnkit_django.core.states import TurnState
from turnkit_django.models import Turn
from turnkit_django.models.querysets import ClockTime
from turnkit_django.store import notices, outbox
from turnkit_django.store.locks import Locks
from turnkit_django.store.moves import transition
from turnkit_django.store.records import AttemptEnd
from turnkit_django.store.transitions.ending import end_turn
from turnkit_django.store.transitions.waking import request_wake, wake_lane
from turnkit_django.store.transitions.writes import database_clock, move_turn, turn_rows


@transition
def pause(locks: Locks, turn_id: str, *, is_cascade: bool) -> list[str]:
    """PENDING, RUNNING, WAITING → PAUSED. Stop before the next step; a running turn does when it gets there.

    The ids of the turns that this changes: those that had ended or were told before are not among them.
    """
    return [
        turn.pk
        for turn in locks.turns(turn_rows().filter(pk__in=_chosen(locks, turn_id, is_cascade=is_cascade)))
        if _pause(turn)
    ]


def _pause(turn: Turn) -> bool:
    if turn.is_terminal or turn.pause_requested or turn.status == TurnState.PAUSED:
        return False
    if turn.status == TurnState.RUNNING:
        move_turn(turn, TurnState.RUNNING, pause_requested=True)
        outbox.tell(notices.pause_requested(turn))
    else:
        move_turn(turn, TurnState.PAUSED, wake_sent_at=None)
        outbox.tell(notices.paused(turn))
    return True


@transition
def resume(locks: Locks, turn_id: str, *, is_cascade: bool) -> list[str]:
    """PAUSED → PENDING, WAITING. Go on; what a running turn has not heard of yet is taken back.

    The ids of the turns that this changes.
    """
    return [
        turn.pk
        for turn in locks.turns(turn_rows().filter(pk__in=_chosen(locks, turn_id, is_cascade=is_cascade)))
        if _resume(turn)
    ]


def _resume(turn: Turn) -> bool:
    if turn.pause_requested:
        move_turn(turn, turn.status, pause_requested=False)
    elif turn.status != TurnState.PAUSED:
        return False
    elif turn.pending_dependencies and turn.submitted_at is not None:
        move_turn(turn, TurnState.WAITING)
    else:
        _make_due(turn)
    outbox.tell(notices.resumed(turn))
    return True


def _make_due(turn: Turn) -> None:
    is_early = turn.not_before is not None and turn.not_before > database_clock()
    if turn.submitted_at is None or is_early:
        move_turn(turn, TurnState.PENDING)
        return
    move_turn(turn, TurnState.PENDING, wake_sent_at=ClockTime())
    request_wake(turn.pk)


@transition
def cancel(locks: Locks, turn_id: str, *, is_cascade: bool = False) -> list[str]:
    """PENDING, RUNNING, WAITING, PAUSED → CANCELLED. Open calls are closed, the claim is void, the lane is free.

    The ids of the turns that this has ended; the others had ended already.
    """
    chosen = _chosen(locks, turn_id, is_cascade=is_cascade)
    lanes = locks.lanes(turn_rows().filter(pk__in=chosen).values_list("conversation_id", flat=True))
    # A parent stands before its children, whose ends would otherwise make it ready for nothing.
    ended = [turn for turn in locks.turns_with_waiters(chosen) if not turn.is_terminal]
    error: Json = {"type": "Cancelled", "message": "the turn was cancelled", "details": {}}
    for turn in ended:
        lane = lanes[turn.conversation_id]
        end_turn(locks, lane, turn, TurnState.CANCELLED, error=error, attempt=AttemptEnd.LOST)
    for conversation_id in sorted({turn.conversation_id for turn in ended}):
        wake_lane(conversation_id)
    return [turn.pk for turn in ended]


def _chosen(locks: Locks, turn_id: str, *, is_cascade: bool) -> list[str]:
    """The turn and, in a cascade, all that its calls have started, parents first.

    Nothing is added meanwhile: whoever starts a turn in this tree takes the same key.
    """
    root_id = turn_rows().values_list("root_id", flat=True).get(pk=turn_id) or turn_id
    locks.root(root_id)
    return [turn_id, *(_below(root_id, turn_id) if is_cascade else ())]


def _below(root_id: str, turn_id: str) -> Iterator[str]:
    children = defaultdict(list)
    for child_id, parent_id in turn_rows().filter(root=root_id).order_by("pk").values_list("pk", "parent_id"):
        children[parent_id].append(child_id)
    parents = [turn_id]
    for parent_id in parents:
        yield from children[parent_id]
        parents += children[parent_id]
