"""Why a turn is not moving: its situation → the reason. Every rule of precedence is one line here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import assert_never, cast

from turnkit_django import conf
from turnkit_django.core.content import Json
from turnkit_django.core.display import one_line
from turnkit_django.core.explanation import Awaited, Descendant, Explanation, Hold, Limit, moment
from turnkit_django.core.reasons import MEANINGS, Reason
from turnkit_django.core.states import Phase, TurnState
from turnkit_django.models import Turn
from turnkit_django.store import situations
from turnkit_django.store.reads import WAKE_LIFETIME
from turnkit_django.store.situations import Situation

_MAINTAINED = frozenset(
    {
        Reason.WAKE_UP_SENT,
        Reason.WAKE_UP_LOST,
        Reason.NO_WAKE_UP,
        Reason.TIME_HAS_COME,
        Reason.OVERDUE,
        Reason.LEASE_EXPIRED,
        Reason.INLINE_LEASE_EXPIRED,
    }
)
"""What a claim or a pass of maintenance would change, if it did not pass over rows that were set aside."""
_OF_WORKERS = frozenset(
    {Reason.CALLING_MODEL, Reason.RUNNING_TOOL, Reason.BETWEEN_STEPS, Reason.RUNNING_INLINE, Reason.OVERDUE_IN_STEP}
)
_TIMED = frozenset(
    {
        Reason.BEHIND_IN_LANE,
        Reason.DEPENDENCIES,
        Reason.WORKER_DIED,
        Reason.AGENT_NOT_REGISTERED,
        Reason.BACKED_OFF,
        Reason.PARKED,
    }
)
"""Where a time on the row stands in the turn's way."""
_BY_ERROR = {
    "UnfinishedAnswer": Reason.FAILED_MAX_BROKEN_REPLIES,
    "PermanentModelError": Reason.FAILED_MODEL_ERROR,
    "ModelAccessError": Reason.FAILED_NO_ACCESS,
    "Refused": Reason.FAILED_REFUSED,
    "WorkerDied": Reason.FAILED_MAX_RECOVERIES,
    "WorkerStopped": Reason.FAILED_WORKER_STOPPED,
}
# Which limit a `BudgetError` was, and which definition a `ConfigError` misses, stands in its words alone.
_BY_BUDGET = {"turn timed out": Reason.FAILED_TIMEOUT, "maximum iterations": Reason.FAILED_MAX_ITERATIONS}
_TOLD_TO_PAUSE = "; it was told to pause, and does so before its next step"
_NOT_REGISTERED = "expected the name of a registered agent"


def explain(turn_id: str) -> Explanation:
    """Why the turn stands where it stands, by one look at its row and what it depends on, and one at the tree below.

    Raises:
        Turn.DoesNotExist: Names the id.
    """
    seen = situations.situation(turn_id)
    found = explained(seen)
    if not seen.has_descendants:
        return found
    below, more = situations.descendants(turn_id)
    return replace(found, descendants=tuple(_descendant(*each) for each in below), more_descendants=more)


def _descendant(depth: int, seen: Situation) -> Descendant:
    turn = seen.turn
    return Descendant(turn.pk, turn.parent_id, depth, turn.agent_name, turn.status, reason_of(seen))


def explained(seen: Situation) -> Explanation:
    """The explanation of a situation."""
    turn = seen.turn
    reason = reason_of(seen)
    meaning = MEANINGS[reason]
    blocker = explained(seen.blocker) if reason is Reason.BEHIND_IN_LANE and seen.blocker else None
    words = _words(seen, reason, blocker)
    since, column = _since(seen, meaning.since)
    return Explanation(
        turn=turn.pk,
        status=turn.status,
        reason=reason,
        summary=meaning.summary.format_map(words) + (_TOLD_TO_PAUSE if turn.pause_requested else ""),
        since=since,
        since_column=column,
        now=seen.now,
        waiting_on=_waiting_on(seen, reason, blocker),
        claim=_claim(turn),
        attempts=turn.attempts,
        next_attempt_at=_next_attempt(seen, reason),
        deadline_at=turn.deadline_at,
        limit=_limit(seen, meaning.limit),
        last_error=_error(turn),
        action=meaning.action.format_map(words),
        retry_of=turn.retry_of_id,
    )


def reason_of(seen: Situation) -> Reason:
    """The one code of the situation."""
    reason = _standing(seen)
    if reason in _MAINTAINED and _is_coming(seen.turn.next_check_at, seen.now):
        return Reason.SET_ASIDE
    return reason


def _standing(seen: Situation) -> Reason:
    status = TurnState(seen.turn.status)
    match status:
        case TurnState.RUNNING:
            return _of_running(seen)
        case TurnState.PENDING:
            return _of_pending(seen)
        case TurnState.WAITING:
            return _of_waiting(seen)
        case TurnState.PAUSED:
            return Reason.OVERDUE if _is_overdue(seen) else Reason.PAUSED
        case TurnState.FAILED:
            return _of_failed(seen.turn)
        case TurnState.COMPLETED | TurnState.CANCELLED | TurnState.STALE:
            return Reason(status.value)
        case _:
            assert_never(status)


def _of_pending(seen: Situation) -> Reason:
    turn = seen.turn
    if _is_overdue(seen):
        return Reason.OVERDUE
    if turn.submitted_at is None:
        return Reason.NOT_SUBMITTED
    if seen.is_behind or seen.blocker is not None:
        return Reason.BEHIND_IN_LANE
    if turn.pending_dependencies:
        return Reason.DEPENDENCIES
    if _is_coming(turn.not_before, seen.now):
        return _of_backed_off(turn)
    if turn.wake_sent_at is None:
        return Reason.NO_WAKE_UP
    return Reason.WAKE_UP_LOST if turn.wake_sent_at < seen.now - WAKE_LIFETIME else Reason.WAKE_UP_SENT


def _of_backed_off(turn: Turn) -> Reason:
    error_type, message, _details = _parts(turn)
    if error_type == "WorkerDied":
        return Reason.WORKER_DIED
    if error_type == "ConfigError" and message.startswith(_NOT_REGISTERED):
        return Reason.AGENT_NOT_REGISTERED
    return Reason.BACKED_OFF


def _of_waiting(seen: Situation) -> Reason:
    turn = seen.turn
    if turn.lane_position is None:
        return Reason.NO_PLACE_IN_LANE
    if _is_overdue(seen):
        return Reason.OVERDUE
    if turn.pending_dependencies:
        return Reason.DEPENDENCIES
    return Reason.PARKED if _is_coming(turn.not_before, seen.now) else Reason.TIME_HAS_COME


def _of_running(seen: Situation) -> Reason:
    turn, is_background = seen.turn, seen.turn.is_background
    if turn.lease_expires_at is not None and turn.lease_expires_at < seen.now:
        return Reason.LEASE_EXPIRED if is_background else Reason.INLINE_LEASE_EXPIRED
    if _is_late(seen):
        return Reason.OVERDUE_IN_STEP
    return _step(seen) if is_background else Reason.RUNNING_INLINE


def _step(seen: Situation) -> Reason:
    """What the holder of the turn does."""
    if seen.running:
        return Reason.RUNNING_TOOL
    return Reason.CALLING_MODEL if seen.turn.attempt_id is not None else Reason.BETWEEN_STEPS


def _of_failed(turn: Turn) -> Reason:
    error_type, message, details = _parts(turn)
    if error_type == "BudgetError":
        found = (reason for words, reason in _BY_BUDGET.items() if message.startswith(words))
        return next(found, Reason.FAILED)
    if error_type == "TransientModelError":
        return Reason.FAILED_MODEL_RETRIES if turn.is_background else Reason.FAILED_MODEL_ERROR
    if error_type in _BY_ERROR:
        return _BY_ERROR[error_type]
    if isinstance(details.get("attempts"), int):  # what a worker's own fault leaves, whatever its class
        return Reason.FAILED_MAX_RECOVERIES if turn.is_background else Reason.FAILED_WORKER_ERROR
    return Reason.FAILED


def _is_late(seen: Situation) -> bool:
    """Whether the deadline has passed. An answer that is there already is still delivered."""
    at = seen.turn.deadline_at
    return at is not None and at < seen.now and seen.turn.phase != Phase.OUTPUT


def _is_overdue(seen: Situation) -> bool:
    """The words of `TurnQuerySet.overdue`, for a turn that no worker holds."""
    return _is_late(seen) and seen.turn.lane_position is not None


def _is_coming(at: datetime | None, now: datetime) -> bool:
    return at is not None and at > now


# What is said beside the reason


def _words(seen: Situation, reason: Reason, blocker: Explanation | None) -> dict[str, str]:
    """What the texts of a meaning may name. Text of strangers is made harmless here."""
    turn = seen.turn
    count = turn.pending_dependencies
    next_at = _next_attempt(seen, reason)
    words = {
        "agent": one_line(turn.agent_name),
        "model": one_line(turn.model),
        "next": moment(next_at) if next_at else "",
        "dependencies": "1 thing" if count == 1 else f"{count} things",
        "pause_reason": f": {one_line(turn.pause_reason)}" if turn.pause_reason else "",
        "tool": one_line(seen.running[0].name) if seen.running else "",
        "phase": turn.phase,
    }
    words["step"] = MEANINGS[_step(seen)].summary.format_map(words)
    if blocker is not None:
        words |= {
            "blocker": blocker.turn,
            "blocker_status": blocker.status,
            "blocker_reason": blocker.reason.value,
            "blocker_summary": blocker.summary,
            "blocker_action": blocker.action,
        }
    return words


def _since(seen: Situation, columns: tuple[str, ...]) -> tuple[datetime, str]:
    """The latest of the times that is not in the future, and its column."""
    turn = seen.turn
    if not columns and seen.running:
        return seen.running[0].since, "started_at of the tool execution"
    columns = columns or MEANINGS[_step(seen)].since
    times = [(at, column) for column in columns if (at := getattr(turn, column)) is not None and at <= seen.now]
    return max(times, default=(turn.created_at, "created_at"))


def _waiting_on(seen: Situation, reason: Reason, blocker: Explanation | None) -> tuple[Awaited, ...]:
    turn = seen.turn
    if blocker is not None:
        return (Awaited("turn", blocker.turn, blocker.since),)
    if reason is Reason.DEPENDENCIES:
        return tuple(seen.missing)
    if reason not in _OF_WORKERS:
        return ()
    if seen.running:
        return tuple(Awaited("tool_execution", each.execution_id, each.since) for each in seen.running)
    if turn.attempt_id is not None and turn.attempt_started_at is not None:
        return (Awaited("model_call", turn.attempt_id, turn.attempt_started_at),)
    return ()


def _claim(turn: Turn) -> Hold | None:
    if turn.claimed_by is None or turn.claimed_at is None or turn.lease_expires_at is None:
        return None
    return Hold(turn.claimed_by, turn.claimed_at, turn.lease_expires_at)


def _next_attempt(seen: Situation, reason: Reason) -> datetime | None:
    """The time before which nothing is done about the turn."""
    turn = seen.turn
    if reason is Reason.SET_ASIDE:
        return turn.next_check_at
    times = (turn.not_before, turn.next_check_at) if reason in _TIMED else ()
    return max((at for at in times if at is not None and at > seen.now), default=None)


def _limit(seen: Situation, name: str) -> Limit | None:
    turn, settings = seen.turn, conf.get()
    match name:
        case "MAX_RECOVERIES":
            attempts = _parts(turn)[2].get("attempts")
            used = max(turn.attempts, attempts) if isinstance(attempts, int) else turn.attempts
            return Limit(name, settings.MAX_RECOVERIES, used)
        case "MODEL_RETRIES":
            return Limit(name, settings.MODEL_RETRIES, turn.model_failures)
        case "MAX_ITERATIONS":
            return Limit(name, turn.max_iterations, turn.iterations)
        case "MAX_BROKEN_REPLIES":
            # Fewer are enough where the model said nothing: what ended the turn was the limit.
            return Limit(name, min(settings.MAX_BROKEN_REPLIES, turn.broken_replies), turn.broken_replies)
        case "TIMEOUT":
            began, ended = turn.submitted_at or turn.started_at or turn.created_at, turn.completed_at or seen.now
            allowed = None if turn.deadline_at is None else (turn.deadline_at - began).total_seconds()
            return Limit(name, allowed, (ended - began).total_seconds())
    return None


def _error(turn: Turn) -> dict[str, Json] | None:
    """The row's error; whatever else stands in its place is shown as a message."""
    error = cast("Json", turn.error)
    if error is None or isinstance(error, dict):
        return error
    return {"type": "", "message": one_line(str(error)), "details": {}}


def _parts(turn: Turn) -> tuple[str, str, Mapping[str, Json]]:
    error = _error(turn) or {}
    details = error.get("details")
    return str(error.get("type")), str(error.get("message")), details if isinstance(details, dict) else {}
