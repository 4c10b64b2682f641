"""What the engine hands to transitions: values, ready to be stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

from turnkit_django.core.content import Json, Part
from turnkit_django.core.states import Phase
from turnkit_django.core.usage import Usage
from turnkit_django.models import Conversation, Message, Turn
from turnkit_django.store.claims import Reservation


class AttemptEnd(Enum):
    """How the open model call of a turn ended, if it has one."""

    UNSENT = "unsent"  # counted, but nothing was sent
    REFUSED = "refused"  # sent, and answered with an error
    ANSWERED = "answered"  # sent, and answered
    LOST = "lost"  # perhaps sent, never heard of again: its bill is unknown


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer as it is stored. Without parts no message is stored.

    Attributes:
        parts: See `core/content.py`.
        metadata: Of the message besides its bill, such as `finish_reason` of an unfinished answer.
        is_broken: Whether it counts as one of the cut or unusable replies in a row.
        model: Who was asked, as the turn names it.
        request_id: Of the call.
        seconds: How long the call took.
        finish_reason: As the provider said it; may be empty.
    """

    parts: Sequence[Part]
    provider: str
    usage: Usage
    cost: Decimal | None
    metadata: Mapping[str, Json]
    is_broken: bool = False
    model: str = ""
    request_id: str = ""
    seconds: float = 0.0
    finish_reason: str = ""

    def message_metadata(self) -> dict[str, Json]:
        """What the message keeps of the call that made it, for people: `model`, `usage`, `cost` and so on."""
        return {
            "model": self.model,
            "usage": dict(self.usage.counts()),
            "cost": None if self.cost is None else format(self.cost, "f"),
            "seconds": self.seconds,
            "request_id": self.request_id,
            **self.metadata,
        }


@dataclass(frozen=True, slots=True)
class NewCall:
    """A call of a reply as it is stored.

    Attributes:
        status: `pending`, or `running` for the first one if it may be repeated: its start shares this commit.
        error: Why it will not run, known already; None if it will.
    """

    id: str
    tool_name: str
    tool_call_id: str
    call_key: str
    ordinal: int
    status: str
    is_replay_safe: bool
    arguments_text: str
    error: Json = None


@dataclass(frozen=True, slots=True)
class NewChild:
    """A turn that a call asks for, with its rows that are not stored yet.

    Attributes:
        execution_id: The call.
        tool_name: As the model wrote it.
        arguments: Of the call, as they are stored.
        turn: Names its parent, its root and the call.
    """

    execution_id: str
    tool_name: str
    arguments: Json
    conversation: Conversation
    message: Message
    turn: Turn


@dataclass(frozen=True, slots=True)
class Settlement:
    """What became of one call.

    Attributes:
        status: A settled `ToolState`.
        text: What the model reads.
        ran_seconds: How long the body ran; None if it was not called.
        tool_name: As the model wrote it.
    """

    execution_id: str
    status: str
    text: str
    arguments: Json = None
    result: Json = None
    error: Json = None
    ran_seconds: float | None = None
    tool_name: str = ""


@dataclass(frozen=True, slots=True)
class Next:
    """What is started in the same commit.

    Attributes:
        phase: Where the turn stands afterwards.
        reservation: The next model call, if the phase is `model` and the limit allows one.
        execution_id: The next call of the batch, if it may be repeated.
        tool_name: Of that call, as the model wrote it.
    """

    phase: Phase
    reservation: Reservation | None = None
    execution_id: str | None = None
    tool_name: str = ""
