"""Messages on their way: sent, put into the transcript of their conversation, and answered by a turn."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from datetime import datetime, timedelta

from django.db.models import F

from turnkit_django import conf
from turnkit_django.core import ids
from turnkit_django.core.backoff import recovery_delay
from turnkit_django.core.content import Json, text_part
from turnkit_django.core.states import TurnState
from turnkit_django.models import Conversation, Delivery, Message, Turn
from turnkit_django.models.message import Kind, Role
from turnkit_django.models.querysets import ClockTime
from turnkit_django.store import notices, outbox
from turnkit_django.store.claims import Claim
from turnkit_django.store.locks import Locks
from turnkit_django.store.moves import maintenance, transition, worker_move
from turnkit_django.store.transitions.inbox import delivery_rows, stored_delivery
from turnkit_django.store.transitions.starting import stored_turn, submitted_turn
from turnkit_django.store.transitions.working import held_turn
from turnkit_django.store.transitions.writes import (
    advance_lane,
    append_messages,
    database_clock,
    move_turn,
    turn_rows,
)


@transition
def send(locks: Locks, delivery: Delivery, *, agent_name: str, source_turn: Turn | None = None) -> Delivery:
    """(new). Store a message to a conversation; a worker delivers it.

    `agent_name` is that of the conversation that sends it. Raises as `inbox.stored_delivery`.
    """
    return stored_delivery(delivery, agent_name=agent_name, source_turn=source_turn)


@worker_move(ends_claim=False)
def send_under_claim(locks: Locks, held: Claim, delivery: Delivery) -> Delivery:
    """RUNNING → RUNNING. Store a message that the turn sends; a worker delivers it.

    Raises as `inbox.stored_delivery`; the claim is then as it was.
    """
    _lane, turn = held_turn(locks, held)
    stored = stored_delivery(delivery, agent_name=held.agent_name, source_turn=turn)
    move_turn(turn, TurnState.RUNNING, revision=turn.revision + 1)
    return stored


@maintenance
def deliver(locks: Locks, delivery_id: str, *, draft: Turn | None) -> Delivery | None:
    """(new) → PENDING. Put a message into the transcript of its conversation; a turn reads it if the lane is free.

    `draft` is that turn; without one the message is delivered all the same. None: it was delivered already.
    """
    lane = locks.lane(delivery_rows().values_list("destination_id", flat=True).get(pk=delivery_id))
    delivery = locks.delivery(delivery_id)
    if delivery.delivered_at is not None:
        return None
    message = _message_of(delivery)
    append_messages(lane, [message])
    delivered = delivery_rows().filter(pk=delivery_id)
    delivered.update(message=message.pk, delivered_at=ClockTime(), not_before=None, error=None)
    advance_lane(lane, unread_count=lane.unread_count + 1)
    outbox.tell(notices.delivered(delivery, lane, message.pk))
    if draft is not None:
        _continue(lane, draft)
    return delivery


def _message_of(delivery: Delivery) -> Message:
    metadata: dict[str, Json] = {
        "delivery_id": delivery.pk,
        "principal": delivery.principal,
        "source_conversation_id": delivery.source_id,
        "source_turn_id": delivery.source_turn_id,
    }
    return Message(
        id=ids.new_message_id(),
        role=Role.USER.value,
        kind=Kind.TEXT.value,
        content=[text_part(delivery.text)],
        metadata=metadata,
    )


@maintenance
def continue_lane(locks: Locks, conversation_id: str, *, draft: Turn) -> Turn | None:
    """(new) → PENDING. Have one turn read all unread messages of a lane where nothing runs or waits to run.

    None: there is such a turn already, or no message whose time has come. A message that too many of these turns have
    not read is given up: it stays in the inbox until another turn reads it.
    """
    return _continue(locks.lane(conversation_id), draft)


def _continue(lane: Conversation, draft: Turn) -> Turn | None:
    if turn_rows().filter(conversation=lane.pk).busy().exists():
        return None
    _give_up(lane)
    unread = delivery_rows().filter(destination=lane.pk, attempts__lte=conf.get().MAX_RECOVERIES).unanswered()
    if not unread.timely().exists():
        return None
    covered = list(unread.order_by("message__sequence"))
    draft = copy(draft)  # what a first try has written into it was rolled back
    draft.trigger_id = covered[-1].message_id
    draft.hops = max(delivery.hops for delivery in covered)
    turn = submitted_turn(lane, stored_turn(lane, draft, None))
    _meant_for(turn, covered)
    return turn


def _meant_for(turn: Turn, covered: Sequence[Delivery]) -> None:
    """The turn is to read them. If it ends before it has, another one is made, each time a little later."""
    now = database_clock()
    for attempts in {delivery.attempts for delivery in covered}:
        again = [delivery.pk for delivery in covered if delivery.attempts == attempts]
        later = now + timedelta(seconds=recovery_delay(attempts + 1))
        delivery_rows().filter(pk__in=again).update(
            receiving_turn=turn.pk, attempts=F("attempts") + 1, not_before=later
        )


def _give_up(lane: Conversation) -> None:
    most = conf.get().MAX_RECOVERIES
    rows = delivery_rows().filter(destination=lane.pk, attempts__gt=most, not_before__isnull=False).unanswered()
    for delivery in rows.order_by("pk"):
        message = f"{delivery.attempts} turns have ended without reading it; it stays until another turn reads it"
        _note(delivery, {"type": "Unread", "message": message, "details": {}}, not_before=None)


@maintenance
def set_deliveries_aside(locks: Locks, delivery_ids: Sequence[str], *, error: Json, seconds: float) -> list[Delivery]:
    """any → the same. Messages that could not be delivered or answered: say so on them, and look again later.

    They are messages to one conversation.
    """
    # Whoever has the lane writes to messages of it that it has not locked, in any order.
    locks.lane(delivery_rows().filter(pk__in=delivery_ids).values_list("destination_id", flat=True)[:1].get())
    found, now = locks.deliveries(delivery_ids), database_clock()
    for delivery in found:
        # Noted and not over yet: a commit that was not heard, or somebody else who came to the same a moment ago.
        is_noted = delivery.error == error and delivery.not_before is not None and delivery.not_before > now
        if not (delivery.request_id or is_noted):
            _note(delivery, error, not_before=now + timedelta(seconds=seconds))
    return found


def _note(delivery: Delivery, error: Json, *, not_before: datetime | None) -> None:
    delivery_rows().filter(pk=delivery.pk).update(error=error, not_before=not_before)
    outbox.tell(notices.set_aside(delivery, error, not_before))
