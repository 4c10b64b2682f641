"""Events of deliveries: messages on their way to a conversation."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from turnkit_django.core.events.base import DeliveryEvent, Explained


@dataclass(frozen=True, kw_only=True)
class DeliverySent(DeliveryEvent):
    """A message to a conversation is stored; it is not in its transcript yet. Once a message, however often it is sent.

    Attributes:
        text_chars: Characters of the message.
        hops: How many messages of agents led to it, itself included.
    """

    type = "delivery.sent"
    text_chars: int
    hops: int


@dataclass(frozen=True, kw_only=True)
class DeliveryDelivered(DeliveryEvent):
    """A message has come into the transcript of its conversation. No model has read it yet.

    Attributes:
        message_id: The row in the transcript.
    """

    type = "delivery.delivered"
    message_id: str


@dataclass(frozen=True, kw_only=True)
class DeliveryApplied(DeliveryEvent):
    """The next model call of a turn, which is counted, includes the message. Again if that call was never sent.

    Attributes:
        request_id: As in `model.requested`.
    """

    type = "delivery.applied"
    request_id: str


@dataclass(frozen=True, kw_only=True)
class DeliverySetAside(Explained, DeliveryEvent):
    """A message could not be delivered or answered just now, or too many turns have ended without reading it.

    Attributes:
        not_before: When it is tried again; None if it stays in the inbox until another turn reads it.
    """

    type = "delivery.set_aside"
    not_before: datetime | None
