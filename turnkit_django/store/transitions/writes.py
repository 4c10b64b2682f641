"""What moves share: the writes they are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, assert_never, cast

from turnkit_django.core.content import Json, Part, as_text, result_part
from turnkit_django.core.events import Event
from turnkit_django.core.states import ToolState, TurnState, check_move
from turnkit_django.models import Conversation, Message, ToolExecution, Turn
from turnkit_django.models.message import Kind, Role
from turnkit_django.models.querysets import ClockTime, TurnQuerySet
from turnkit_django.store import connections, notices, outbox
from turnkit_django.store.locks import Locks
from turnkit_django.store.records import AttemptEnd

Fields = dict[str, Any]
_CLAIM = ("claim_token", "claimed_by", "claimed_at", "lease_expires_at")
NO_CLAIM: Fields = dict.fromkeys(_CLAIM) | {"pause_requested": False}
"""A request to pause is for whoever holds the claim; what becomes of it is said where the claim ends."""
NO_ATTEMPT: Fields = dict.fromkeys(("attempt_id", "attempt_started_at", "attempt_reserved"))
OPEN_CALLS = (ToolState.PENDING.value, ToolState.RUNNING.value)
UNKNOWN = "Whether it took effect is unknown: check before you call it again."


def turn_rows() -> TurnQuerySet:
    return Turn.objects.using(connections.alias())


def database_clock() -> datetime:
    """The database's time, taken now: after the locks, and the same for all hosts."""
    with connections.current().cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cast("datetime", cursor.fetchone()[0])


def deadline_of(turn: Turn, start: datetime, default_seconds: int | None) -> datetime | None:
    """When the turn fails: by its own limit, or already by its parent's, which it was made with."""
    limit = timedelta(seconds=default_seconds) if turn.timeout is None and default_seconds is not None else turn.timeout
    times = [turn.deadline_at, None if limit is None else start + limit]
    return min((at for at in times if at is not None), default=None)


def move_turn(turn: Turn, state: str, **fields: Any) -> None:
    """The only place that assigns a turn's state."""
    if state != turn.status:
        check_move(turn.status, state)
    turn_rows().filter(pk=turn.pk).update(status=state, **fields)
    turn.status = state
    for name, value in fields.items():
        if not hasattr(value, "resolve_expression"):
            setattr(turn, name, value)


def let_go(turn: Turn, state: str, tells: Callable[[Turn], Event], **fields: Any) -> None:
    """End a claim whose turn has not ended; a turn that was told to pause is paused, whatever it would have become."""
    is_paused = turn.pause_requested
    move_turn(turn, TurnState.PAUSED if is_paused else state, **NO_CLAIM, **fields)
    outbox.tell((notices.paused if is_paused else tells)(turn))


def append_messages(lane: Conversation, messages: Sequence[Message]) -> None:
    """Number and store messages; the lane's row is locked, so there is no hole and no repeat."""
    for number, message in enumerate(messages, start=lane.next_sequence):
        message.conversation_id = lane.pk
        message.sequence = number
    Message.objects.using(connections.alias()).bulk_create(messages)
    advance_lane(lane, next_sequence=lane.next_sequence + len(messages))
    outbox.tell(*(notices.message(lane, message) for message in messages))


def place_of(lane: Conversation, turn: Turn) -> int:
    """A turn that has started keeps its place, however it goes on: what came later stands behind it."""
    if turn.started_at is not None and turn.lane_position is not None:
        return turn.lane_position
    place = lane.next_lane_position
    advance_lane(lane, next_lane_position=place + 1)
    return place


def advance_lane(lane: Conversation, **numbers: int) -> None:
    Conversation.objects.using(connections.alias()).filter(pk=lane.pk).update(**numbers)
    for name, number in numbers.items():
        setattr(lane, name, number)


def own_message(turn: Turn, role: Role, kind: Kind, parts: Sequence[Part]) -> Message:
    return Message(turn_id=turn.pk, role=role.value, kind=kind.value, content=list(parts))


def interrupt_started(locks: Locks, lane: Conversation, turn: Turn) -> None:
    """A started call without an outcome: one that may be repeated is pending again, another's outcome is unknown."""
    results = []
    for execution in locks.executions(turn.pk, statuses=[ToolState.RUNNING.value]):
        if execution.is_replay_safe:
            execution_rows().filter(pk=execution.pk).update(status=ToolState.PENDING)
        else:
            # Which of the two it was shows in no row: a worker that hangs in a tool is taken for dead.
            why = "the worker stopped while this tool ran, or its time ran out: it may still take effect."
            text = close_call(turn, execution, ToolState.INTERRUPTED, f"{why} {UNKNOWN}")
            results.append(result_message(turn, execution, text))
    if results:
        append_messages(lane, results)


def execution_rows() -> Any:
    return ToolExecution.objects.using(connections.alias())


def close_call(turn: Turn, execution: ToolExecution, state: ToolState, message: str) -> str:
    """Settle a call that has no result; what the model reads."""
    message = message[0].upper() + message[1:]
    error = {"type": state.value.capitalize(), "message": message, "details": {}}
    execution_rows().filter(pk=execution.pk).update(status=state, error=error, completed_at=ClockTime())
    outbox.tell(notices.call_closed(turn, execution, state, message))
    return as_text({"error": message})


def result_message(turn: Turn, execution: ToolExecution, text: str) -> Message:
    part = result_part(call_id=execution.tool_call_id, key=execution.call_key, text=text, error=True)
    message = own_message(turn, Role.TOOL, Kind.TOOL_RESULT, [part])
    message.tool_execution_id = execution.pk
    return message


def attempt_fields(turn: Turn, end: AttemptEnd, error: Json) -> Fields:
    if turn.attempt_id is None:
        return {}
    if end in {AttemptEnd.REFUSED, AttemptEnd.LOST}:
        outbox.tell(notices.model_failed(turn, error, is_lost=end is AttemptEnd.LOST))
    match end:
        case AttemptEnd.UNSENT | AttemptEnd.REFUSED:
            return {**NO_ATTEMPT, "iterations": turn.iterations - 1}
        case AttemptEnd.LOST:
            return {**NO_ATTEMPT, "unknown_attempts": turn.unknown_attempts + 1, "cost": None}
        case AttemptEnd.ANSWERED:
            return NO_ATTEMPT
        case _:
            assert_never(end)
