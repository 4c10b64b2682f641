"""Maintenance moves: each handles one row, and gives way to whoever holds it."""

from __future__ import annotations

from datetime import timedelta

from turnkit_django.core.content import Json
from turnkit_django.core.states import Phase, TurnState
from turnkit_django.models import Turn
from turnkit_django.store import notices, outbox
from turnkit_django.store.locks import Locks
from turnkit_django.store.moves import maintenance
from turnkit_django.store.records import AttemptEnd
from turnkit_django.store.transitions.ending import end_turn
from turnkit_django.store.transitions.waking import wake_lane
from turnkit_django.store.transitions.writes import (
    attempt_fields,
    database_clock,
    interrupt_started,
    let_go,
    move_turn,
    turn_rows,
)


@maintenance
def recover(
    locks: Locks, turn_id: str, *, token: str, max_recoveries: int, seconds: float, is_dead: bool
) -> Turn | None:
    """RUNNING → PENDING, PAUSED, FAILED, STALE. Take the turn from a dead worker; what it had started is unknown.

    `is_dead` says that the worker is known to be gone, whatever the lease says. None: it is alive, or was quicker.
    """
    lane = locks.lane(turn_rows().values_list("conversation_id", flat=True).get(pk=turn_id))
    turn = locks.turn_with_waiters(turn_id)
    is_expired = turn.lease_expires_at is not None and turn.lease_expires_at < database_clock()
    if turn.claim_token != token or not (is_expired or is_dead):
        return None
    attempts = turn.attempts + 1
    died: dict[str, Json] = {"type": "WorkerDied", "details": {"attempts": attempts}}
    if turn.submitted_at is None:
        died["message"] = "the process that ran the turn died; turns that are not submitted are not resumed"
        end_turn(locks, lane, turn, TurnState.STALE, error=died, attempt=AttemptEnd.LOST, attempts=attempts)
    elif attempts > max_recoveries:
        died["message"] = f"{attempts} workers died while they ran this turn"
        end_turn(locks, lane, turn, TurnState.FAILED, error=died, attempt=AttemptEnd.LOST, attempts=attempts)
    else:
        interrupt_started(locks, lane, turn)
        later = database_clock() + timedelta(seconds=seconds)
        died["message"] = f"the worker {turn.claimed_by} died"
        fields = attempt_fields(turn, AttemptEnd.LOST, died) | {"attempts": attempts, "not_before": later}
        let_go(turn, TurnState.PENDING, notices.recovered, error=died, **fields)
    wake_lane(lane.pk)
    return turn


@maintenance
def ready(locks: Locks, turn_id: str) -> Turn | None:
    """WAITING → PENDING. Its time has come and nothing is missing. None: not yet, or it was moved meanwhile."""
    lane = locks.lane(turn_rows().values_list("conversation_id", flat=True).get(pk=turn_id))
    turn = locks.turn(turn_id)
    is_due = turn.not_before is None or turn.not_before <= database_clock()
    if turn.status != TurnState.WAITING or turn.pending_dependencies or not is_due:
        return None
    move_turn(turn, TurnState.PENDING, not_before=None)
    outbox.tell(notices.readied(turn))
    wake_lane(lane.pk)
    return turn


@maintenance
def give_up(locks: Locks, turn_id: str, *, error: Json) -> Turn | None:
    """PENDING, WAITING, PAUSED → FAILED. Its deadline passed while no worker held it. None: it was moved meanwhile."""
    lane = locks.lane(turn_rows().values_list("conversation_id", flat=True).get(pk=turn_id))
    turn = locks.turn_with_waiters(turn_id)
    if turn.is_terminal or turn.status == TurnState.RUNNING or turn.phase == Phase.OUTPUT:
        return None
    end_turn(locks, lane, turn, TurnState.FAILED, error=error, attempt=AttemptEnd.LOST)
    wake_lane(lane.pk)
    return turn


@maintenance
def set_aside(locks: Locks, turn_id: str, *, error: Json, seconds: float) -> Turn:
    """any → the same. Maintenance failed on this row: say so on it, and look at it again later."""
    turn = locks.turn(turn_id)
    if not turn.is_terminal:
        move_turn(turn, turn.status, error=error, next_check_at=database_clock() + timedelta(seconds=seconds))
    return turn
