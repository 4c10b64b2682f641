"""How a turn ends: no call stays open, no claim in force, and whoever waits for its end learns of it."""

from __future__ import annotations

from typing import Any

from turnkit_django.core.content import Json
from turnkit_django.core.states import ToolState, TurnState
from turnkit_django.models import Conversation, ToolExecution, Turn
from turnkit_django.models.querysets import ClockTime
from turnkit_django.store import notices, outbox
from turnkit_django.store.locks import Locks
from turnkit_django.store.records import AttemptEnd
from turnkit_django.store.transitions.writes import (
    NO_CLAIM,
    OPEN_CALLS,
    UNKNOWN,
    append_messages,
    attempt_fields,
    close_call,
    move_turn,
    result_message,
)


def end_turn(
    locks: Locks, lane: Conversation, turn: Turn, state: TurnState, *, error: Json, attempt: AttemptEnd, **fields: Any
) -> None:
    """To a final state other than completed: no call stays open, no claim in force."""
    why = {"cancelled": "the turn was cancelled", "failed": "the turn failed", "stale": "its process died"}[state]
    closed = [_closed(turn, execution, why) for execution in locks.executions(turn.pk, statuses=OPEN_CALLS)]
    if closed:
        append_messages(lane, [result_message(turn, execution, text) for execution, text in closed])
    fields |= NO_CLAIM | attempt_fields(turn, attempt, error)
    move_turn(turn, state, error=error, completed_at=ClockTime(), **fields)
    outbox.tell(notices.ended(turn))


def _closed(turn: Turn, execution: ToolExecution, why: str) -> tuple[ToolExecution, str]:
    if execution.status == ToolState.RUNNING:
        return execution, close_call(turn, execution, ToolState.INTERRUPTED, f"{why} while this tool ran. {UNKNOWN}")
    text = f"{why} before this tool was started: it did not run."
    return execution, close_call(turn, execution, ToolState.CANCELLED, text)
