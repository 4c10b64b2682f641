"""A worker's moves under its claim, which they carry; they never join the application's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from django.core.exceptions import ObjectDoesNotExist

from turnkit_django.core.content import Json, text_part
from turnkit_django.core.states import Phase, ToolState, TurnState
from turnkit_django.models import Conversation, Message, ToolExecution, Turn
from turnkit_django.models.message import Kind, Role
from turnkit_django.models.querysets import ClockTime
from turnkit_django.store import notices, outbox, parameters, sql
from turnkit_django.store.claims import Claim, PauseRetracted
from turnkit_django.store.locks import Locks
from turnkit_django.store.moves import erased, lost, statement, worker_move
from turnkit_django.store.records import AttemptEnd, NewCall, Next, Reply, Settlement
from turnkit_django.store.transitions.ending import after_end, end_turn
from turnkit_django.store.transitions.inbox import mark_unread
from turnkit_django.store.transitions.waking import wake_lane
from turnkit_django.store.transitions.writes import (
    NO_ATTEMPT,
    NO_CLAIM,
    Fields,
    append_messages,
    attempt_fields,
    database_clock,
    execution_rows,
    interrupt_started,
    let_go,
    move_turn,
    own_message,
)


@statement(sql.STORE_REPLY, tells=notices.reply_stored)
def store_reply(reply: Reply, *, calls: Sequence[NewCall], then: Next, lease_seconds: int) -> Fields:
    """RUNNING → RUNNING. Keep the model's answer, its bill and its calls, and start what comes next."""
    return parameters.of_reply(reply, calls, then, lease_seconds)


@statement(sql.START_TOOL, tells=notices.tool_started)
def start_tool(execution_id: str, *, tool_name: str, arguments: Json, lease_seconds: int) -> Fields:
    """RUNNING → RUNNING. From here on the tool's effect is unknown until it is settled."""
    return {"execution_id": execution_id, "arguments": parameters.dump(arguments), "lease_seconds": lease_seconds}


@statement(sql.SETTLE_TOOL, tells=notices.tool_settled)
def settle_tool(settlement: Settlement, *, call_id: str, call_key: str, then: Next, lease_seconds: int) -> Fields:
    """RUNNING → RUNNING. Keep a tool's outcome with the message the model reads, and start what comes next."""
    return parameters.of_settlement(settlement, call_id, call_key, then, lease_seconds)


@worker_move
def complete(locks: Locks, held: Claim, *, text: str, reply: Reply | None) -> None:
    """RUNNING → COMPLETED, PAUSED. Keep the answer; the lane is free.

    The answer of a turn that was told to pause is kept back, and published when it goes on.
    """
    lane, turn = held_turn(locks, held, ends=True)
    if reply is not None:
        outbox.tell(notices.model_completed(turn, reply))
    fields = counted(turn) | _bill(turn, reply) | {"phase": Phase.OUTPUT, "error": None}
    if turn.pause_requested:
        kept = turn.candidate if reply is None else _candidate(text, reply)
        let_go(turn, TurnState.PAUSED, notices.paused, **fields, candidate=kept)
        return
    message, text = _answer(turn, text, reply)
    append_messages(lane, [message])
    fields |= {"output_text": text, "candidate": None}
    move_turn(turn, TurnState.COMPLETED, completed_at=ClockTime(), **NO_CLAIM, **fields)
    outbox.tell(notices.completed(turn))
    after_end(locks, lane, turn)
    if turn.submitted_at is None:
        wake_lane(lane.pk)


@worker_move
def fail(
    locks: Locks,
    held: Claim,
    *,
    error: Json,
    attempt: AttemptEnd,
    usage: Mapping[str, int] | None = None,
    reply: Reply | None = None,
    calls: Sequence[NewCall] = (),
) -> None:
    """RUNNING → FAILED. Say why, keep a refused `reply` with its calls, close open calls; the lane is free.

    `usage` came with a failed model call that had no reply.
    """
    lane, turn = held_turn(locks, held, ends=True)
    bill = _bill(turn, reply) | _unpriced(turn, usage) | {"revision": turn.revision + 1}
    if reply is not None:
        _keep(lane, turn, reply, calls)
    end_turn(locks, lane, turn, TurnState.FAILED, error=error, attempt=attempt, **bill)
    if turn.submitted_at is None:
        wake_lane(lane.pk)


@worker_move
def park(
    locks: Locks,
    held: Claim,
    *,
    error: Json,
    seconds: float,
    attempt: AttemptEnd,
    usage: Mapping[str, int] | None = None,
) -> None:
    """RUNNING → WAITING, PAUSED. The provider wants to be asked later; the worker is free, the work is kept."""
    _lane, turn = held_turn(locks, held)
    fields = counted(turn) | attempt_fields(turn, attempt, error) | _unpriced(turn, usage)
    fields |= {"error": error, "not_before": database_clock() + timedelta(seconds=seconds)}
    let_go(turn, TurnState.WAITING, notices.parked, model_failures=turn.model_failures + 1, **fields)


@worker_move
def release(locks: Locks, held: Claim, *, error: Json, seconds: float, attempt: AttemptEnd, is_fault: bool) -> None:
    """RUNNING → PENDING, PAUSED. Give the turn back, after a fault of this worker with a back-off."""
    lane, turn = held_turn(locks, held)
    interrupt_started(locks, lane, turn)
    if attempt is AttemptEnd.UNSENT:
        mark_unread(lane, turn)
    fields = counted(turn) | attempt_fields(turn, attempt, error) | {"error": error}
    if is_fault:
        fields |= {"attempts": turn.attempts + 1, "not_before": database_clock() + timedelta(seconds=seconds)}
    let_go(turn, TurnState.PENDING, notices.released, **fields)
    if not is_fault:
        wake_lane(lane.pk)


@worker_move
def acknowledge_pause(locks: Locks, held: Claim) -> None:
    """RUNNING → PAUSED. Nothing of the turn is under way: what was started and not called is pending again.

    Raises:
        PauseRetracted: If nobody wants it to pause any more.
    """
    lane, turn = held_turn(locks, held)
    if not turn.pause_requested:
        raise PauseRetracted(f"{turn.pk} is not told to pause any more; it goes on")
    running = execution_rows().filter(turn=turn.pk, status=ToolState.RUNNING)
    running.update(status=ToolState.PENDING, started_at=None)
    mark_unread(lane, turn)
    unsent = attempt_fields(turn, AttemptEnd.UNSENT, None)
    let_go(turn, TurnState.PAUSED, notices.paused, **counted(turn), **unsent)


def held_turn(locks: Locks, held: Claim, *, ends: bool = False) -> tuple[Conversation, Turn]:
    """The lane and the turn of a claim in force, locked; with `ends` also the turns that its end has an effect on."""
    try:
        lane = locks.lane(held.conversation_id)
        turn = locks.turn_with_waiters(held.turn_id) if ends else locks.turn(held.turn_id)
    except ObjectDoesNotExist:
        raise erased(held) from None
    require_held(turn, held)
    return lane, turn


def require_held(turn: Turn, held: Claim) -> None:
    """Refuse a ghost's write; the turn's row is locked."""
    if turn.claim_token != held.token or turn.revision != held.revision:
        raise lost(held)


def counted(turn: Turn) -> Fields:
    """What a worker's closing write sets: it still counts the revision, so that it is known to have committed."""
    return {"revision": turn.revision + 1}


def _answer(turn: Turn, text: str, reply: Reply | None) -> tuple[Message, str]:
    """The message to publish and its text: the reply, or what a pause has kept back, or the words of a tool."""
    kept = _candidate(text, reply) if reply else turn.candidate or _candidate(text, None)
    message = own_message(turn, Role.ASSISTANT, Kind.TEXT, kept["parts"])
    message.provider, message.metadata = kept["provider"], kept["metadata"]
    return message, kept["text"]


def _candidate(text: str, reply: Reply | None) -> dict[str, Any]:
    if reply is None:
        return {"text": text, "parts": [text_part(text)], "provider": "", "metadata": {}}
    return {"text": text, "parts": list(reply.parts), "provider": reply.provider, "metadata": reply.message_metadata()}


def _bill(turn: Turn, reply: Reply | None) -> Fields:
    if reply is None:
        return {}
    counts = _added(turn, reply.usage.counts())
    known = None if turn.cost is None or reply.cost is None else turn.cost + reply.cost
    return {**counts, **NO_ATTEMPT, "cost": known, "model_failures": 0, "broken_replies": 0}


def _keep(lane: Conversation, turn: Turn, reply: Reply, calls: Sequence[NewCall]) -> None:
    """Store a reply that ends the turn, with the rows of what it proposed."""
    outbox.tell(notices.model_completed(turn, reply, calls))
    if reply.parts:
        kind = Kind.TOOL_CALL if calls else Kind.TEXT
        message = own_message(turn, Role.ASSISTANT, kind, reply.parts)
        message.provider, message.metadata = reply.provider, reply.message_metadata()
        append_messages(lane, [message])
    execution_rows().bulk_create(ToolExecution(turn_id=turn.pk, **asdict(call)) for call in calls)
    outbox.tell(*(notices.call_created(turn, call) for call in calls))


def _unpriced(turn: Turn, usage: Mapping[str, int] | None) -> Fields:
    """Tokens that a failed call reported count; what they cost is not known."""
    return {**_added(turn, usage), "cost": None} if usage else {}


def _added(turn: Turn, counts: Mapping[str, int]) -> Fields:
    return {name: getattr(turn, name) + count for name, count in counts.items()}
