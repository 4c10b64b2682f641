"""Verbs that send messages to conversations: check the input, make the row, hand over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from turnkit_django.core import ids
from turnkit_django.core.content import Json, clean_text, shown
from turnkit_django.engine.drafts import (
    checked_key,
    json_value,
    require_saved,
    require_text,
    saved_conversation,
)
from turnkit_django.errors import InputError
from turnkit_django.models import Conversation, Delivery
from turnkit_django.store import inboxes, reads, transitions


@dataclass(frozen=True, slots=True)
class InputStatus:
    """Whether a model call has included a message.

    Attributes:
        delivery: The row as it is now.
        status: `pending` until a model call that includes the message is about to be sent, then `applied`.
        turn_id: The turn of that call; None while pending.
        request_id: The call, as in the request's metadata; None while pending.
    """

    delivery: Delivery
    status: Literal["pending", "applied"]
    turn_id: str | None
    request_id: str | None


def post(conversation: Conversation, text: str, *, key: str, principal: Json = None) -> Delivery:
    return _send(conversation, conversation, text, key=key, principal=principal)


def send(
    conversation: Conversation, destination: Conversation, text: str, *, key: str, principal: Json = None
) -> Delivery:
    return _send(conversation, saved_conversation("destination", destination), text, key=key, principal=principal)


def _send(source: Conversation, destination: Conversation, text: str, *, key: str, principal: Json) -> Delivery:
    require_saved(source)
    require_text(text)
    draft = Delivery(
        id=ids.new_delivery_id(),
        source=source,
        destination=destination,
        key=checked_key(source.pk, key),
        text=clean_text(text),
        principal=json_value("principal", principal),
    )
    stored = reads.conversation(source.pk)
    return transitions.send(draft, agent_name=stored.agent_name)


def input_status(conversation: Conversation, delivery: Delivery) -> InputStatus:
    require_saved(conversation)
    if not isinstance(delivery, Delivery) or delivery.destination_id != conversation.pk:
        raise InputError(f"expected a delivery in the inbox of {conversation.pk}, got {shown(delivery)}")
    now = inboxes.delivery(delivery.pk)
    if not now.request_id:
        return InputStatus(now, "pending", None, None)
    return InputStatus(now, "applied", now.receiving_turn_id, now.request_id)
