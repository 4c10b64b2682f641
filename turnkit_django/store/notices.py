"""Rows and values → the events that moves tell."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from turnkit_django.core import events
from turnkit_django.core.content import Json
from turnkit_django.core.events import LONGEST_ERROR, LONGEST_NAME, Event
from turnkit_django.core.states import ToolState, TurnState
from turnkit_django.models import Conversation, Delivery, Message, ToolExecution, Turn
from turnkit_django.store.claims import Claim
from turnkit_django.store.records import NewCall, NewChild, Next, Reply, Settlement

Fields = dict[str, Any]


def _of(turn: Turn) -> Fields:
    return {"turn_id": turn.pk, "conversation_id": turn.conversation_id, "agent_name": turn.agent_name}


def _under(held: Claim) -> Fields:
    return {"turn_id": held.turn_id, "conversation_id": held.conversation_id, "agent_name": held.agent_name}


def _why(error: Json) -> Fields:
    told = cast("dict[str, Json]", error or {})
    message = str(told.get("message", ""))[:LONGEST_ERROR]
    return {"error_type": str(told.get("type", "")), "error_message": message}


def _bill(turn: Turn) -> Fields:
    return {"usage": turn.usage, "cost": turn.cost}


# Turns, as they are after the move


def submitted(turn: Turn) -> Event:
    return events.TurnSubmitted(**_of(turn), model=turn.model)


def started(turn: Turn, *, is_first: bool) -> Event:
    return events.TurnStarted(**_of(turn), model=turn.model, worker=turn.claimed_by or "", is_first=is_first)


def completed(turn: Turn) -> Event:
    return events.TurnCompleted(**_of(turn), **_bill(turn), output_chars=len(turn.output_text))


def ended(turn: Turn) -> Event:
    """It has ended in another way than completed."""
    match turn.status:
        case TurnState.CANCELLED:
            return events.TurnCancelled(**_of(turn), **_bill(turn))
        case TurnState.STALE:
            return events.TurnStale(**_of(turn), **_bill(turn), **_why(turn.error))
    return events.TurnFailed(**_of(turn), **_bill(turn), **_why(turn.error))


def parked(turn: Turn) -> Event:
    return events.TurnParked(**_of(turn), **_why(turn.error), not_before=cast("Any", turn.not_before))


def pause_requested(turn: Turn) -> Event:
    return events.TurnPauseRequested(**_of(turn))


def paused(turn: Turn) -> Event:
    return events.TurnPaused(**_of(turn))


def resumed(turn: Turn) -> Event:
    return events.TurnResumed(**_of(turn))


def waiting(turn: Turn) -> Event:
    return events.TurnWaiting(**_of(turn), count=turn.pending_dependencies)


def readied(turn: Turn) -> Event:
    return events.TurnReady(**_of(turn))


def released(turn: Turn) -> Event:
    return events.TurnReleased(**_of(turn), **_why(turn.error), not_before=turn.not_before)


def recovered(turn: Turn) -> Event:
    not_before = cast("Any", turn.not_before)
    return events.TurnRecovered(**_of(turn), **_why(turn.error), attempts=turn.attempts, not_before=not_before)


# Model calls


def model_completed(turn: Turn, reply: Reply, calls: Sequence[NewCall] = ()) -> Event:
    return _answered(_of(turn), reply, calls)


def model_failed(turn: Turn, error: Json, *, is_lost: bool) -> Event:
    """The open model call of the turn has ended without an answer."""
    return events.ModelFailed(**_of(turn), **_why(error), model=turn.model, request_id=turn.request_id, is_lost=is_lost)


def _answered(about: Fields, reply: Reply, calls: Sequence[NewCall]) -> Event:
    return events.ModelCompleted(
        **about,
        model=reply.model,
        request_id=reply.request_id,
        finish_reason=reply.finish_reason[:LONGEST_NAME],
        tool_call_count=len(calls),
        usage=reply.usage,
        cost=reply.cost,
        seconds=reply.seconds,
    )


# Messages and calls of tools


def message(lane: Conversation, stored: Message) -> Event:
    return events.MessageCreated(
        turn_id=stored.turn_id,
        conversation_id=lane.pk,
        agent_name=lane.agent_name,
        message_id=stored.pk,
        role=stored.role,
        kind=stored.kind,
    )


def _message(held: Claim, values: Fields) -> list[Event]:
    if not values["has_message"]:
        return []
    told = {"message_id": values["message_id"], "role": values["role"], "kind": values["kind"]}
    return [events.MessageCreated(**_under(held), **told)]


def call_created(turn: Turn, call: NewCall) -> Event:
    return _created(_of(turn), call)


def call_closed(turn: Turn, execution: ToolExecution, state: ToolState, reason: str) -> Event:
    """A call without a result: never started, or of unknown outcome."""
    kind = events.ToolCallInterrupted if state is ToolState.INTERRUPTED else events.ToolCallSkipped
    return kind(**_of(turn), **_call(execution.pk, execution.tool_name), error_message=reason)


def delegated(parent: Turn, child: NewChild) -> Event:
    """A call of the parent has started a turn."""
    return events.SubAgentDelegated(
        **_of(parent),
        **_call(child.execution_id, child.tool_name),
        child_turn_id=child.turn.pk,
        child_conversation_id=child.conversation.pk,
        child_agent_name=child.turn.agent_name,
        task_chars=len(child.message.text),
    )


def _call(execution_id: str, tool_name: str) -> Fields:
    return {"execution_id": execution_id, "tool_name": tool_name[:LONGEST_NAME]}


def _created(about: Fields, call: NewCall) -> Event:
    size = len(call.arguments_text)
    return events.ToolCallCreated(**about, **_call(call.id, call.tool_name), arguments_chars=size)


def _started(held: Claim, execution_id: str, tool_name: str) -> Event:
    return events.ToolCallStarted(**_under(held), **_call(execution_id, tool_name))


# Messages between conversations


def sent(delivery: Delivery, agent_name: str) -> Event:
    return events.DeliverySent(
        turn_id=delivery.source_turn_id,
        conversation_id=delivery.source_id or "",
        agent_name=agent_name,
        **_way(delivery),
        text_chars=len(delivery.text),
        hops=delivery.hops,
    )


def delivered(delivery: Delivery, lane: Conversation, message_id: str) -> Event:
    return events.DeliveryDelivered(**_to(delivery, lane), message_id=message_id)


def applied(delivery: Delivery, turn: Turn, request_id: str) -> Event:
    return events.DeliveryApplied(**_of(turn), **_way(delivery), request_id=request_id)


def set_aside(delivery: Delivery, error: Json, not_before: datetime | None) -> Event:
    return events.DeliverySetAside(**_to(delivery, delivery.destination), **_why(error), not_before=not_before)


def _to(delivery: Delivery, lane: Conversation) -> Fields:
    return {"turn_id": None, "conversation_id": lane.pk, "agent_name": lane.agent_name, **_way(delivery)}


def _way(delivery: Delivery) -> Fields:
    return {
        "delivery_id": delivery.pk,
        "source_id": delivery.source_id,
        "destination_id": delivery.destination_id,
    }


# What the hot statements tell: they are made from the arguments of the move, and from the parameters for its SQL


def reply_stored(
    held: Claim, values: Fields, reply: Reply, *, calls: Sequence[NewCall], then: Next, lease_seconds: int
) -> list[Event]:
    about = _under(held)
    running = [call for call in calls if call.status == ToolState.RUNNING]
    return [
        _answered(about, reply, calls),
        *_message(held, values),
        *(_created(about, call) for call in calls),
        *(_started(held, call.id, call.tool_name) for call in running),
    ]


def tool_started(
    held: Claim, values: Fields, execution_id: str, *, tool_name: str, arguments: Json, lease_seconds: int
) -> list[Event]:
    return [_started(held, execution_id, tool_name)]


def tool_settled(
    held: Claim,
    values: Fields,
    settlement: Settlement,
    *,
    call_id: str,
    call_key: str,
    then: Next,
    lease_seconds: int,
) -> list[Event]:
    told = [_outcome(held, settlement), *_message(held, values)]
    if then.execution_id is not None:
        told.append(_started(held, then.execution_id, then.tool_name))
    return told


def _outcome(held: Claim, settlement: Settlement) -> Event:
    about = _under(held) | _call(settlement.execution_id, settlement.tool_name)
    sizes: Fields = {"result_chars": len(settlement.text), "seconds": _rounded(settlement.ran_seconds)}
    why = _why(settlement.error)
    if settlement.status == ToolState.COMPLETED:
        return events.ToolCallCompleted(**about, **sizes)
    without_result = {"cancelled": events.ToolCallSkipped, "interrupted": events.ToolCallInterrupted}
    if kind := without_result.get(settlement.status):
        return kind(**about, error_message=why["error_message"])
    return events.ToolCallFailed(**about, **sizes, **why)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
