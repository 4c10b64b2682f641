"""How a turn ends: no call stays open, no claim in force, and whoever waits for its end learns of it."""

from __future__ import annotations

from typing import Any

from django.db import DatabaseError, transaction

from turnkit_django import conf
from turnkit_django.core.content import Json, as_text, clean_text
from turnkit_django.core.states import ToolState, TurnState
from turnkit_django.errors import TurnkitError
from turnkit_django.models import Conversation, Delivery, ToolExecution, Turn
from turnkit_django.models.querysets import ClockTime
from turnkit_django.store import connections, notices, outbox
from turnkit_django.store.envelopes import envelope
from turnkit_django.store.locks import Locks
from turnkit_django.store.records import AttemptEnd
from turnkit_django.store.transitions.inbox import mark_unread, stored_delivery
from turnkit_django.store.transitions.joining import release_waiters
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
    if attempt is AttemptEnd.UNSENT:
        mark_unread(lane, turn)
    fields |= NO_CLAIM | attempt_fields(turn, attempt, error)
    move_turn(turn, state, error=error, completed_at=ClockTime(), **fields)
    outbox.tell(notices.ended(turn))
    after_end(locks, lane, turn)


def after_end(locks: Locks, lane: Conversation, turn: Turn) -> None:
    """What follows in the same transaction, once the row says how the turn has ended."""
    release_waiters(locks, turn)
    if turn.callback_id is not None and turn.submitted_at is not None:
        _tell_callback(turn)
    if lane.unread_count:  # messages came while it ran
        outbox.wake_for_messages()


def _tell_callback(turn: Turn) -> None:
    """Send the result to where it was asked for. Whatever is wrong with that is noted, and the end stands."""
    told = Delivery(
        source_id=turn.conversation_id,
        destination_id=turn.callback_id,
        key=f"completion:{turn.pk}",
        text=as_text(envelope(turn)),
        principal=turn.principal,
    )
    try:
        with transaction.atomic(using=connections.alias()):
            stored_delivery(told, agent_name=turn.agent_name, source_turn=turn)
    except (TurnkitError, DatabaseError) as problem:
        if connections.is_repeatable(problem):
            raise
        message = clean_text(conf.clean(str(problem)))
        error: Json = {"type": type(problem).__name__, "message": message, "details": {}}
        move_turn(turn, turn.status, callback_error=error)


def _closed(turn: Turn, execution: ToolExecution, why: str) -> tuple[ToolExecution, str]:
    if execution.status == ToolState.RUNNING or execution.started_at is not None:
        return execution, close_call(turn, execution, ToolState.INTERRUPTED, f"{why} while this tool ran. {UNKNOWN}")
    text = f"{why} before this tool was started: it did not run."
    return execution, close_call(turn, execution, ToolState.CANCELLED, text)
