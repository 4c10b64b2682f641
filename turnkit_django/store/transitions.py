"""Every change of state: one function a move, one transaction each.

People's moves take ids and join the application's transaction; workers' moves take a `Claim` and never do. The first
line of each docstring is `FROM → TO. What else happens.`
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, assert_never, cast

from django.core.exceptions import ObjectDoesNotExist
from django.db import DatabaseError
from django.db.models import Q

from turnkit_django import conf
from turnkit_django.core import ids
from turnkit_django.core.content import Json, Part, as_text, result_part
from turnkit_django.core.states import Phase, ToolState, TurnState, check_move
from turnkit_django.errors import StateError, UnclaimableTurn
from turnkit_django.models import Conversation, Message, ToolExecution, Turn
from turnkit_django.models.message import Kind, Role
from turnkit_django.models.querysets import ClockTime, TurnQuerySet
from turnkit_django.store import connections, notices, outbox, parameters, reads, sql
from turnkit_django.store.claims import Claim, Claimed, Holder
from turnkit_django.store.locks import Locks
from turnkit_django.store.moves import claiming, erased, lost, maintenance, statement, transition, worker_move
from turnkit_django.store.records import AttemptEnd, NewCall, Next, Reply, Settlement

_INLINE_SECONDS = 300  # somebody waits for the answer

Fields = dict[str, Any]
_NO_CLAIM: Fields = dict.fromkeys(("claim_token", "claimed_by", "claimed_at", "lease_expires_at"))
_NO_ATTEMPT: Fields = dict.fromkeys(("attempt_id", "attempt_started_at", "attempt_reserved"))


def _turns() -> TurnQuerySet:
    return Turn.objects.using(connections.alias())


# People's moves


@transition
def open_conversation(locks: Locks, conversation: Conversation) -> Conversation:
    """(new). Store a conversation."""
    _open(conversation)
    return conversation


@transition
def say(locks: Locks, message: Message) -> Message:
    """(new). Store what a user said; nothing runs."""
    lane = locks.lane(message.conversation_id)
    if not Message.objects.using(connections.alias()).filter(pk=message.pk).exists():
        _append(lane, [message])
    return message


@transition
def start(
    locks: Locks, draft: Turn, *, message: Message | None, is_submission: bool, opening: Conversation | None = None
) -> Turn:
    """(new) → PENDING. Store the turn with its message; a submission takes the next place of the lane.

    `opening` is the turn's conversation if that is new too.
    """
    if opening is not None:
        _open(opening)
    lane = locks.lane(draft.conversation_id)
    known = _known(draft, message)
    if known is None:
        known = _started(lane, draft, message)
    elif known.pk == draft.pk and known.submitted_at is not None:  # a commit that was not heard: nor was its wake-up
        outbox.wake(known.pk, on_failure=unsent)
    return _submitted(lane, known) if is_submission and known.status == TurnState.PENDING else known


@transition
def submit(locks: Locks, turn_id: str) -> Turn:
    """PENDING → PENDING. Take the next place of the lane, start the clock of the deadline, wake a worker."""
    lane = locks.lane(_turns().values_list("conversation_id", flat=True).get(pk=turn_id))
    return _submitted(lane, locks.turn(turn_id))


@transition
def cancel(locks: Locks, turn_id: str) -> Turn | None:
    """PENDING, RUNNING, WAITING, PAUSED → CANCELLED. Open calls are closed, the claim is void, the lane is free.

    None: it had ended already.
    """
    root_id, conversation_id = _turns().values_list("root_id", "conversation_id").get(pk=turn_id)
    locks.root(root_id or turn_id)
    lane = locks.lane(conversation_id)
    turn = locks.turn(turn_id)
    if turn.is_terminal:
        return None
    error: Json = {"type": "Cancelled", "message": "the turn was cancelled", "details": {}}
    _end(locks, lane, turn, TurnState.CANCELLED, error=error, attempt=AttemptEnd.LOST)
    _wake_lane(lane.pk)
    return turn


def _open(conversation: Conversation) -> None:
    if not Conversation.objects.using(connections.alias()).filter(pk=conversation.pk).exists():
        conversation.save(using=connections.alias(), force_insert=True)


def _started(lane: Conversation, draft: Turn, message: Message | None) -> Turn:
    draft = copy(draft)  # what a first try has written into it was rolled back
    if message is not None:
        message.turn_id = draft.pk
        draft.trigger_id = message.pk
        _append(lane, [message])
    draft.context_sequence = lane.next_sequence - 1
    draft.save(using=connections.alias(), force_insert=True)
    return draft


def _known(draft: Turn, message: Message | None) -> Turn | None:
    """The turn that an earlier try, or an earlier use of the same key, has stored."""
    same = Q(pk=draft.pk)
    if draft.submission_key is not None:
        same |= Q(conversation=draft.conversation_id, submission_key=draft.submission_key)
    known = _turns().filter(same).select_related("trigger").first()
    if known is None or known.pk == draft.pk:
        return known
    stored = known.trigger.text if known.trigger else None
    if stored != (message.text if message else None):
        raise StateError(
            f"key {draft.submission_key!r} belongs to {known.pk} of {draft.conversation_id}, which was made with "
            "another text; use a new key for a new text"
        )
    return known


def _submitted(lane: Conversation, turn: Turn) -> Turn:
    if turn.submitted_at is not None:
        return turn
    if turn.status != TurnState.PENDING:
        raise StateError(f"{turn.pk} is {turn.status} and was never submitted; only a pending turn can be submitted")
    now = _clock()
    _move(
        turn,
        TurnState.PENDING,
        lane_position=_take_place(lane),
        submitted_at=now,
        deadline_at=_deadline(turn, now, conf.get().TIMEOUT),
        wake_sent_at=now,
    )
    outbox.wake(turn.pk, on_failure=unsent)
    outbox.tell(notices.submitted(turn))
    return turn


def _deadline(turn: Turn, start: datetime, default_seconds: int | None) -> datetime | None:
    if turn.timeout is not None:
        return start + turn.timeout
    return None if default_seconds is None else start + timedelta(seconds=default_seconds)


# Claims


def claim(holder: Holder, *, spare: int = 0) -> list[Claimed]:
    """Claim due heads of lanes, oldest submission first: at most one for each token of the holder.

    Args:
        spare: How many lanes more to look at, in case somebody has locked the heads of the first ones.
    """
    return claim_due(lambda: _held_under(holder) or None, holder, spare=spare)


def claim_this(turn_id: str, holder: Holder) -> Claimed:
    """Claim one turn that was not submitted, to run it in this process.

    Raises:
        LaneBusy: If its conversation has another started turn or submitted work.
        StateError: If it is submitted, started or ended.
    """
    return claim_inline(lambda: next(iter(_held_under(holder)), None), turn_id, holder)


def claim_new(draft: Turn, holder: Holder, *, message: Message | None) -> Claimed | Turn:
    """Store a turn and claim it, to run it in this process; the turn itself if its key is known and it has started.

    Raises:
        LaneBusy: If its conversation has a started turn or submitted work; nothing is stored.
        StateError: If its key was used for another text.
    """
    return start_inline(lambda: next(iter(_held_under(holder)), None), draft, holder, message=message)


@claiming
def claim_due(locks: Locks, holder: Holder, *, spare: int) -> list[Claimed]:
    """PENDING → RUNNING. Fix what the turn sees, count its next model call, void its wake-up."""
    count = len(holder.tokens)
    lanes = {lane.pk: lane for lane in locks.free_lanes(limit=count + spare)}
    if not lanes:
        return []
    heads = locks.idle_turns(_turns().heads().filter(conversation__in=lanes), limit=count)
    claimed = []
    for turn, token in zip(heads, holder.tokens, strict=False):
        try:
            claimed.append(_take(lanes[turn.conversation_id], turn, holder, token))
        except DatabaseError as problem:
            if connections.is_repeatable(problem):
                raise
            raise UnclaimableTurn(turn.pk) from problem
    return claimed


@claiming
def claim_inline(locks: Locks, turn_id: str, holder: Holder) -> Claimed:
    """PENDING → RUNNING. The same for a turn that was not submitted, if its lane is free."""
    lane = locks.lane(_turns().values_list("conversation_id", flat=True).get(pk=turn_id))
    turn = locks.turn(turn_id)
    if turn.status != TurnState.PENDING or turn.submitted_at is not None:
        how = "submitted: a worker runs it" if turn.submitted_at else turn.status
        raise StateError(f"{turn.pk} is {how}; only a pending turn that was not submitted can be run here")
    reads.require_idle(lane.pk, unless=turn.pk)
    return _take_here(lane, turn, holder)


@claiming
def start_inline(locks: Locks, draft: Turn, holder: Holder, *, message: Message | None) -> Claimed | Turn:
    """(new) → RUNNING. Store the turn with its message and claim it in one, if its lane is free."""
    lane = locks.lane(draft.conversation_id)
    known = _known(draft, message)
    if known is not None and (known.status != TurnState.PENDING or known.submitted_at is not None):
        return known
    reads.require_idle(lane.pk, unless=known.pk if known else "")
    return _take_here(lane, known or _started(lane, draft, message), holder)


def _take_here(lane: Conversation, turn: Turn, holder: Holder) -> Claimed:
    _move(turn, TurnState.PENDING, lane_position=_take_place(lane))
    return _take(lane, turn, holder, holder.tokens[0])


def _take(lane: Conversation, turn: Turn, holder: Holder, token: str) -> Claimed:
    now = _clock()
    first = turn.started_at is None
    if turn.phase == Phase.TOOLS and not _executions().filter(turn=turn.pk, status__in=_OPEN_CALLS).exists():
        turn.phase = Phase.MODEL
    fields: Fields = {
        "phase": turn.phase,
        "revision": turn.revision + 1,
        "claim_token": token,
        "claimed_by": holder.name,
        "claimed_at": now,
        "lease_expires_at": now + timedelta(seconds=holder.lease_seconds),
        "started_at": turn.started_at or now,
        "not_before": None,
        "next_check_at": None,
        "wake_sent_at": None,
    }
    if first and turn.submitted_at is not None:
        fields["context_sequence"] = lane.next_sequence - 1
    if turn.submitted_at is None:
        fields["deadline_at"] = _deadline(turn, now, conf.get().TIMEOUT or _INLINE_SECONDS)
    if turn.phase == Phase.MODEL and turn.iterations < turn.max_iterations:
        fields |= {
            "iterations": turn.iterations + 1,
            "request_id": ids.new_token(),
            "attempt_id": ids.new_token(),
            "attempt_started_at": now,
        }
    _move(turn, TurnState.RUNNING, **fields)
    outbox.tell(notices.started(turn, is_first=first))
    return _claimed(turn, lane, now)


def _claimed(turn: Turn, lane: Conversation, now: datetime) -> Claimed:
    held = Claim(turn.pk, lane.pk, turn.root_id or turn.pk, turn.claim_token or "", turn.revision, turn.agent_name)
    return Claimed(held, turn, lane, now)


def _held_under(holder: Holder) -> list[Claimed]:
    held = _turns().filter(claim_token__in=holder.tokens, status=TurnState.RUNNING).select_related("conversation")
    return [_claimed(turn, turn.conversation, _clock()) for turn in held]


@maintenance
def renew(locks: Locks, claims: Sequence[Claim], *, lease_seconds: int) -> set[str]:
    """RUNNING → RUNNING. Prolong leases; the ids of the turns that were not locked by others just now."""
    values: Fields = {
        "turn_ids": [held.turn_id for held in claims],
        "tokens": [held.token for held in claims],
        "lease_seconds": lease_seconds,
    }
    with connections.current().cursor() as cursor:
        cursor.execute(sql.RENEW_LEASES, values)
        return {row[0] for row in cursor.fetchall()}


# A worker's moves under its claim


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
    """RUNNING → COMPLETED. Keep the answer; the lane is free."""
    lane, turn = _held(locks, held)
    bill = _bill(turn, reply)
    parts: Sequence[Part] = reply.parts if reply else [{"type": "text", "text": text}]
    message = _own_message(turn, Role.ASSISTANT, Kind.TEXT, parts)
    if reply is not None:
        message.provider, message.metadata = reply.provider, reply.message_metadata()
        outbox.tell(notices.model_completed(turn, reply))
    _append(lane, [message])
    fields = _without_claim(turn) | bill | {"phase": Phase.OUTPUT, "output_text": text, "error": None}
    _move(turn, TurnState.COMPLETED, completed_at=ClockTime(), **fields)
    outbox.tell(notices.completed(turn))
    if turn.submitted_at is None:
        _wake_lane(lane.pk)


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
    lane, turn = _held(locks, held)
    bill = _bill(turn, reply) | _unpriced(turn, usage) | {"revision": turn.revision + 1}
    if reply is not None:
        _keep(lane, turn, reply, calls)
    _end(locks, lane, turn, TurnState.FAILED, error=error, attempt=attempt, **bill)
    if turn.submitted_at is None:
        _wake_lane(lane.pk)


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
    """RUNNING → WAITING. The provider wants to be asked later; the worker is free, the work is kept."""
    _lane, turn = _held(locks, held)
    fields = _without_claim(turn) | _attempt_end(turn, attempt, error) | _unpriced(turn, usage)
    later = _clock() + timedelta(seconds=seconds)
    _move(turn, TurnState.WAITING, error=error, not_before=later, model_failures=turn.model_failures + 1, **fields)
    outbox.tell(notices.parked(turn))


@worker_move
def release(locks: Locks, held: Claim, *, error: Json, seconds: float, attempt: AttemptEnd, is_fault: bool) -> None:
    """RUNNING → PENDING. Give the turn back, after a fault of this worker with a back-off."""
    lane, turn = _held(locks, held)
    _interrupt_started(locks, lane, turn)
    fields = _without_claim(turn) | _attempt_end(turn, attempt, error) | {"error": error}
    if is_fault:
        fields |= {"attempts": turn.attempts + 1, "not_before": _clock() + timedelta(seconds=seconds)}
    _move(turn, TurnState.PENDING, **fields)
    outbox.tell(notices.released(turn))
    if not is_fault:
        _wake_lane(lane.pk)


def _held(locks: Locks, held: Claim) -> tuple[Conversation, Turn]:
    try:
        lane = locks.lane(held.conversation_id)
        turn = locks.turn(held.turn_id)
    except ObjectDoesNotExist:
        raise erased(held) from None
    if turn.claim_token != held.token or turn.revision != held.revision:
        raise lost(held)
    return lane, turn


def _without_claim(turn: Turn) -> Fields:
    """What a worker's closing write sets: it still counts the revision, so that it is known to have committed."""
    return {**_NO_CLAIM, "revision": turn.revision + 1}


def _bill(turn: Turn, reply: Reply | None) -> Fields:
    if reply is None:
        return {}
    counts = _added(turn, reply.usage.counts())
    known = None if turn.cost is None or reply.cost is None else turn.cost + reply.cost
    return {**counts, **_NO_ATTEMPT, "cost": known, "model_failures": 0, "broken_replies": 0}


def _keep(lane: Conversation, turn: Turn, reply: Reply, calls: Sequence[NewCall]) -> None:
    """Store a reply that ends the turn, with the rows of what it proposed."""
    outbox.tell(notices.model_completed(turn, reply, calls))
    if reply.parts:
        kind = Kind.TOOL_CALL if calls else Kind.TEXT
        message = _own_message(turn, Role.ASSISTANT, kind, reply.parts)
        message.provider, message.metadata = reply.provider, reply.message_metadata()
        _append(lane, [message])
    _executions().bulk_create(ToolExecution(turn_id=turn.pk, **asdict(call)) for call in calls)
    outbox.tell(*(notices.call_created(turn, call) for call in calls))


def _unpriced(turn: Turn, usage: Mapping[str, int] | None) -> Fields:
    """Tokens that a failed call reported count; what they cost is not known."""
    return {**_added(turn, usage), "cost": None} if usage else {}


def _added(turn: Turn, counts: Mapping[str, int]) -> Fields:
    return {name: getattr(turn, name) + count for name, count in counts.items()}


# Maintenance moves


@maintenance
def recover(
    locks: Locks, turn_id: str, *, token: str, max_recoveries: int, seconds: float, is_dead: bool
) -> Turn | None:
    """RUNNING → PENDING, FAILED, STALE. Take the turn from a dead worker; what it had started is unknown.

    `is_dead` says that the worker is known to be gone, whatever the lease says. None: it is alive, or was quicker.
    """
    lane = locks.lane(_turns().values_list("conversation_id", flat=True).get(pk=turn_id))
    turn = locks.turn(turn_id)
    is_expired = turn.lease_expires_at is not None and turn.lease_expires_at < _clock()
    if turn.claim_token != token or not (is_expired or is_dead):
        return None
    attempts = turn.attempts + 1
    died: dict[str, Json] = {"type": "WorkerDied", "details": {"attempts": attempts}}
    if turn.submitted_at is None:
        died["message"] = "the process that ran the turn died; turns that are not submitted are not resumed"
        _end(locks, lane, turn, TurnState.STALE, error=died, attempt=AttemptEnd.LOST, attempts=attempts)
    elif attempts > max_recoveries:
        died["message"] = f"{attempts} workers died while they ran this turn"
        _end(locks, lane, turn, TurnState.FAILED, error=died, attempt=AttemptEnd.LOST, attempts=attempts)
    else:
        _interrupt_started(locks, lane, turn)
        later = _clock() + timedelta(seconds=seconds)
        died["message"] = f"the worker {turn.claimed_by} died"
        fields = _NO_CLAIM | _attempt_end(turn, AttemptEnd.LOST, died) | {"attempts": attempts, "not_before": later}
        _move(turn, TurnState.PENDING, error=died, **fields)
        outbox.tell(notices.recovered(turn))
    _wake_lane(lane.pk)
    return turn


@maintenance
def ready(locks: Locks, turn_id: str) -> Turn | None:
    """WAITING → PENDING. Its time has come and nothing is missing. None: not yet, or it was moved meanwhile."""
    lane = locks.lane(_turns().values_list("conversation_id", flat=True).get(pk=turn_id))
    turn = locks.turn(turn_id)
    is_due = turn.not_before is None or turn.not_before <= _clock()
    if turn.status != TurnState.WAITING or turn.pending_dependencies or not is_due:
        return None
    _move(turn, TurnState.PENDING, not_before=None)
    outbox.tell(notices.ready(turn))
    _wake_lane(lane.pk)
    return turn


@maintenance
def give_up(locks: Locks, turn_id: str, *, error: Json) -> Turn | None:
    """PENDING, WAITING, PAUSED → FAILED. Its deadline passed while no worker held it. None: it was moved meanwhile."""
    lane = locks.lane(_turns().values_list("conversation_id", flat=True).get(pk=turn_id))
    turn = locks.turn(turn_id)
    if turn.is_terminal or turn.status == TurnState.RUNNING or turn.phase == Phase.OUTPUT:
        return None
    _end(locks, lane, turn, TurnState.FAILED, error=error, attempt=AttemptEnd.LOST)
    _wake_lane(lane.pk)
    return turn


@maintenance
def set_aside(locks: Locks, turn_id: str, *, error: Json, seconds: float) -> None:
    """any → the same. Maintenance failed on this row: say so on it, and look at it again later."""
    turn = locks.turn(turn_id)
    if not turn.is_terminal:
        _move(turn, turn.status, error=error, next_check_at=_clock() + timedelta(seconds=seconds))


@maintenance
def wake_due(locks: Locks, *, limit: int, only: str | None = None) -> int:
    """PENDING → PENDING. Send the wake-ups that due heads of lanes lack, or that of one; how many."""
    silent = reads.unwoken()
    found = locks.idle_turns(silent if only is None else silent.filter(pk=only), limit=limit)
    _wake(*found)
    return len(found)


@maintenance
def unsent(locks: Locks, turn_ids: Iterable[str]) -> None:
    """PENDING → PENDING. A wake-up could not be sent: let reconcile send it without waiting for its lifetime."""
    for turn in locks.turns(_turns().filter(pk__in=list(turn_ids), status=TurnState.PENDING)):
        _move(turn, TurnState.PENDING, wake_sent_at=None)


# What moves share

_OPEN_CALLS = (ToolState.PENDING.value, ToolState.RUNNING.value)
_UNKNOWN = "Whether it took effect is unknown: check before you call it again."


def _clock() -> datetime:
    """The database's time, taken now: after the locks, and the same for all hosts."""
    with connections.current().cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cast("datetime", cursor.fetchone()[0])


def _move(turn: Turn, state: str, **fields: Any) -> None:
    """The only place that assigns a turn's state."""
    if state != turn.status:
        check_move(turn.status, state)
    _turns().filter(pk=turn.pk).update(status=state, **fields)
    turn.status = state
    for name, value in fields.items():
        if not hasattr(value, "resolve_expression"):
            setattr(turn, name, value)


def _append(lane: Conversation, messages: Sequence[Message]) -> None:
    """Number and store messages; the lane's row is locked, so there is no hole and no repeat."""
    for number, message in enumerate(messages, start=lane.next_sequence):
        message.conversation_id = lane.pk
        message.sequence = number
    Message.objects.using(connections.alias()).bulk_create(messages)
    _advance(lane, next_sequence=lane.next_sequence + len(messages))
    outbox.tell(*(notices.message(lane, message) for message in messages))


def _take_place(lane: Conversation) -> int:
    place = lane.next_lane_position
    _advance(lane, next_lane_position=place + 1)
    return place


def _advance(lane: Conversation, **numbers: int) -> None:
    Conversation.objects.using(connections.alias()).filter(pk=lane.pk).update(**numbers)
    for name, number in numbers.items():
        setattr(lane, name, number)


def _own_message(turn: Turn, role: Role, kind: Kind, parts: Sequence[Part]) -> Message:
    return Message(turn_id=turn.pk, role=role.value, kind=kind.value, content=list(parts))


def _end(
    locks: Locks, lane: Conversation, turn: Turn, state: TurnState, *, error: Json, attempt: AttemptEnd, **fields: Any
) -> None:
    """To a final state other than completed: no call stays open, no claim in force."""
    why = {"cancelled": "the turn was cancelled", "failed": "the turn failed", "stale": "its process died"}[state]
    closed = [_closed(turn, execution, why) for execution in locks.executions(turn.pk, statuses=_OPEN_CALLS)]
    if closed:
        _append(lane, [_result(turn, execution, text) for execution, text in closed])
    fields |= _NO_CLAIM | _attempt_end(turn, attempt, error)
    _move(turn, state, error=error, completed_at=ClockTime(), **fields)
    outbox.tell(notices.ended(turn))


def _closed(turn: Turn, execution: ToolExecution, why: str) -> tuple[ToolExecution, str]:
    if execution.status == ToolState.RUNNING:
        return execution, _finish(turn, execution, ToolState.INTERRUPTED, f"{why} while this tool ran. {_UNKNOWN}")
    text = f"{why} before this tool was started: it did not run."
    return execution, _finish(turn, execution, ToolState.CANCELLED, text)


def _interrupt_started(locks: Locks, lane: Conversation, turn: Turn) -> None:
    """A started call without an outcome: one that may be repeated is pending again, another's outcome is unknown."""
    results = []
    for execution in locks.executions(turn.pk, statuses=[ToolState.RUNNING.value]):
        if execution.is_replay_safe:
            _executions().filter(pk=execution.pk).update(status=ToolState.PENDING)
        else:
            text = _finish(
                turn, execution, ToolState.INTERRUPTED, f"the worker stopped while this tool ran. {_UNKNOWN}"
            )
            results.append(_result(turn, execution, text))
    if results:
        _append(lane, results)


def _executions() -> Any:
    return ToolExecution.objects.using(connections.alias())


def _finish(turn: Turn, execution: ToolExecution, state: ToolState, message: str) -> str:
    """Settle a call that has no result; what the model reads."""
    message = message[0].upper() + message[1:]
    error = {"type": state.value.capitalize(), "message": message, "details": {}}
    _executions().filter(pk=execution.pk).update(status=state, error=error, completed_at=ClockTime())
    outbox.tell(notices.call_closed(turn, execution, state, message))
    return as_text({"error": message})


def _result(turn: Turn, execution: ToolExecution, text: str) -> Message:
    part = result_part(call_id=execution.tool_call_id, key=execution.call_key, text=text, error=True)
    message = _own_message(turn, Role.TOOL, Kind.TOOL_RESULT, [part])
    message.tool_execution_id = execution.pk
    return message


def _attempt_end(turn: Turn, end: AttemptEnd, error: Json) -> Fields:
    if turn.attempt_id is None:
        return {}
    if end in {AttemptEnd.REFUSED, AttemptEnd.LOST}:
        outbox.tell(notices.model_failed(turn, error, is_lost=end is AttemptEnd.LOST))
    match end:
        case AttemptEnd.UNSENT | AttemptEnd.REFUSED:
            return {**_NO_ATTEMPT, "iterations": turn.iterations - 1}
        case AttemptEnd.LOST:
            return {**_NO_ATTEMPT, "unknown_attempts": turn.unknown_attempts + 1, "cost": None}
        case AttemptEnd.ANSWERED:
            return _NO_ATTEMPT
        case _:
            assert_never(end)


def _wake_lane(conversation_id: str) -> None:
    """The lane may have become free: wake a worker for its head.

    The head's row is locked after the moved turn's, whatever their ids: see `docs/locking.md`.
    """
    for turn in _turns().heads().filter(conversation=conversation_id)[:1]:
        _wake(turn)


def _wake(*turns: Turn) -> None:
    for turn in turns:
        _move(turn, turn.status, wake_sent_at=ClockTime())
    outbox.wake(*(turn.pk for turn in turns), on_failure=unsent)
