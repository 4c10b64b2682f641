"""What events are made of: the value that all carry, their families, and what several of them carry."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from decimal import Decimal
from typing import ClassVar

from turnkit_django.core.content import Json, shown
from turnkit_django.core.usage import Usage

LONGEST_ERROR = 1000
"""Characters of an error's text that an event carries."""
LONGEST_NAME = 200
"""Characters of a name that a model or a provider has written."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """What every event carries.

    Attributes:
        type: Its stable name, such as `turn.completed`.
        turn_id: The turn; None only in `message.created`, for a message that belongs to no turn, and in events of
            deliveries that no turn has sent or reads.
        conversation_id: The conversation.
        agent_name: The agent of the conversation.
        at: When it was recorded, by the clock of the process that did it.
    """

    type: ClassVar[str]

    turn_id: str | None
    conversation_id: str
    agent_name: str
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def as_dict(self) -> dict[str, Json]:
        """The event as JSON, `type` first: times in ISO 8601, money as text, usage as its counts with the total."""
        return {"type": self.type} | {item.name: _json(getattr(self, item.name)) for item in fields(self)}


def _json(value: object) -> Json:
    match value:
        case Usage():
            return dict(value.as_dict())
        case datetime():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case tuple():
            return [_json(item) for item in value]
        case None | bool() | int() | float() | str():
            return value
    raise TypeError(f"an event holds {shown(value)}, which has no JSON form here")


@dataclass(frozen=True, kw_only=True)
class TurnEvent(Event):
    """A turn was submitted or has changed its state."""


@dataclass(frozen=True, kw_only=True)
class ModelCallEvent(Event):
    """A model is asked, has answered, or will not answer."""


@dataclass(frozen=True, kw_only=True)
class MessageEvent(Event):
    """A message was stored."""


@dataclass(frozen=True, kw_only=True)
class ToolCallEvent(Event):
    """A call of a tool was stored, started or settled.

    Attributes:
        execution_id: The row of the call.
        tool_name: As the model wrote it, at most 200 characters: text of a stranger.
    """

    execution_id: str
    tool_name: str


@dataclass(frozen=True, kw_only=True)
class DeliveryEvent(Event):
    """A message to a conversation was sent, delivered or read. The conversation and the turn are those of the sender
    in `delivery.sent`, of the receiver in the others.

    Attributes:
        delivery_id: The row.
        source_id: The conversation that sent it; None if it was erased.
        destination_id: The conversation it is for.
    """

    delivery_id: str
    source_id: str | None
    destination_id: str


@dataclass(frozen=True, kw_only=True)
class Explained:
    """An event with a reason.

    Attributes:
        error_type: Which kind of error, as the row's `error` says.
        error_message: Its text, at most 1,000 characters.
    """

    error_type: str
    error_message: str


@dataclass(frozen=True, kw_only=True)
class Billed:
    """An event with the bill of a whole turn.

    Attributes:
        usage: Tokens of the turn.
        cost: US dollars of the turn; None if a part is unknown.
    """

    usage: Usage
    cost: Decimal | None
