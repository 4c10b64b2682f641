"""The catalogue of events: what is told after a commit, one frozen value an event.

An event says what has happened to which turn, in facts and sizes: no prompts, no answers, no arguments and no results.
Texts of errors are those that rows keep, cleaned of secrets and cut.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from decimal import Decimal
from typing import ClassVar, TypeAlias

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
        turn_id: The turn; None only in `message.created`, for a message that belongs to no turn.
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


@dataclass(frozen=True, kw_only=True)
class TurnSubmitted(TurnEvent):
    """A turn has taken its place in the lane: a worker will run it. Once a turn, however often it is submitted.

    Attributes:
        model: The model it will ask.
    """

    type = "turn.submitted"
    model: str


@dataclass(frozen=True, kw_only=True)
class TurnStarted(TurnEvent):
    """A turn was claimed: by a worker, or by the process that runs it inline. Again after each release, recovery
    or parking.

    Attributes:
        model: The model it asks.
        worker: Who claimed it: `host:pid:slot`.
        is_first: Whether nobody had claimed it before.
    """

    type = "turn.started"
    model: str
    worker: str
    is_first: bool


@dataclass(frozen=True, kw_only=True)
class TurnCompleted(Billed, TurnEvent):
    """A turn has ended with an answer, which is stored.

    Attributes:
        output_chars: Characters of `output_text`.
    """

    type = "turn.completed"
    output_chars: int


@dataclass(frozen=True, kw_only=True)
class TurnFailed(Explained, Billed, TurnEvent):
    """A turn has ended without an answer: a limit, a refusal, a model or a worker that failed for good."""

    type = "turn.failed"


@dataclass(frozen=True, kw_only=True)
class TurnCancelled(Billed, TurnEvent):
    """Somebody has ended a turn. Not again if it is cancelled again."""

    type = "turn.cancelled"


@dataclass(frozen=True, kw_only=True)
class TurnStale(Explained, Billed, TurnEvent):
    """Maintenance has ended an inline turn whose process died."""

    type = "turn.stale"


@dataclass(frozen=True, kw_only=True)
class TurnParked(Explained, TurnEvent):
    """A turn waits, without a worker, because its provider wants to be asked later.

    Attributes:
        not_before: When it will be ready again.
    """

    type = "turn.parked"
    not_before: datetime


@dataclass(frozen=True, kw_only=True)
class TurnReady(TurnEvent):
    """What a waiting turn waited for is there, or its time has come: it is pending again."""

    type = "turn.ready"


@dataclass(frozen=True, kw_only=True)
class TurnReleased(Explained, TurnEvent):
    """A worker has given a turn back: after its own fault, or because it was told to stop.

    Attributes:
        not_before: The end of the back-off after a fault; None if the turn may be claimed at once.
    """

    type = "turn.released"
    not_before: datetime | None


@dataclass(frozen=True, kw_only=True)
class TurnRecovered(Explained, TurnEvent):
    """Maintenance has taken a submitted turn from a dead worker: it is pending again.

    Attributes:
        attempts: Claims of this turn that have ended without progress.
        not_before: The end of the back-off.
    """

    type = "turn.recovered"
    attempts: int
    not_before: datetime


@dataclass(frozen=True, kw_only=True)
class ModelRequested(ModelCallEvent):
    """A request, counted by an earlier commit, leaves for the model now.

    Attributes:
        model: The model that is asked.
        request_id: Names the request; the answer's message keeps it in its metadata.
        iteration: Which model call of the turn it is, from 1.
        message_count: Messages of the request, the system prompt not counted.
        prompt_chars: Characters of the system prompt, of the messages and of the arguments of calls in them.
        tool_names: The tools that are offered.
    """

    type = "model.requested"
    model: str
    request_id: str
    iteration: int
    message_count: int
    prompt_chars: int
    tool_names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ModelCompleted(ModelCallEvent):
    """A model has answered, and the answer is stored or counted, be it cut, empty or a refusal.

    Attributes:
        model: The model that was asked.
        request_id: As in `model.requested`.
        finish_reason: As the provider said it, at most 200 characters; may be empty.
        tool_call_count: Calls the answer asks for.
        usage: Tokens of this call; all 0 if the provider reported none.
        cost: US dollars of this call; None if unknown.
        seconds: How long the call took.
    """

    type = "model.completed"
    model: str
    request_id: str
    finish_reason: str
    tool_call_count: int
    usage: Usage
    cost: Decimal | None
    seconds: float


@dataclass(frozen=True, kw_only=True)
class ModelFailed(Explained, ModelCallEvent):
    """A counted model call has ended without an answer: an error, no credentials, a turn that ended meanwhile, or a
    worker that died.

    Attributes:
        model: The model that was asked.
        request_id: As in `model.requested`.
        is_lost: Whether the call was perhaps sent and never heard of again, so that its bill is unknown.
    """

    type = "model.failed"
    model: str
    request_id: str
    is_lost: bool


@dataclass(frozen=True, kw_only=True)
class MessageCreated(MessageEvent):
    """A message was stored: any message, whoever wrote it.

    Attributes:
        message_id: The row.
        role: `user`, `assistant` or `tool`.
        kind: `text`, `tool_call`, `tool_result` or another of the kinds of messages.
    """

    type = "message.created"
    message_id: str
    role: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class ToolCallCreated(ToolCallEvent):
    """A model has asked for a call; nothing has run. Every proposed call has this event.

    Attributes:
        arguments_chars: Characters of the arguments as the model wrote them.
    """

    type = "tool_call.created"
    arguments_chars: int


@dataclass(frozen=True, kw_only=True)
class ToolCallStarted(ToolCallEvent):
    """The start of a call is recorded: its body runs next. Again if a replay-safe call is repeated after a recovery
    that had put it back; not for a call that is refused before its body.
    """

    type = "tool_call.started"


@dataclass(frozen=True, kw_only=True)
class ToolCallCompleted(ToolCallEvent):
    """A call has a result, which is stored.

    Attributes:
        result_chars: Characters of the message that the model reads.
        seconds: How long the body ran; None if it was not called.
    """

    type = "tool_call.completed"
    result_chars: int
    seconds: float | None


@dataclass(frozen=True, kw_only=True)
class ToolCallFailed(Explained, ToolCallEvent):
    """A call was refused before its body, or its body has raised.

    Attributes:
        result_chars: Characters of the message that the model reads.
        seconds: How long the body ran; None if it was not called.
    """

    type = "tool_call.failed"
    result_chars: int
    seconds: float | None


@dataclass(frozen=True, kw_only=True)
class ToolCallSkipped(ToolCallEvent):
    """A call will never run: a terminal tool has ended the turn before it, or the turn has ended.

    Attributes:
        error_message: Why, as in the execution's `error`.
    """

    type = "tool_call.skipped"
    error_message: str


@dataclass(frozen=True, kw_only=True)
class ToolCallInterrupted(ToolCallEvent):
    """A started call will have no result: whether it took effect is unknown.

    Attributes:
        error_message: Why, as in the execution's `error`.
    """

    type = "tool_call.interrupted"
    error_message: str


FAMILIES = (TurnEvent, ModelCallEvent, MessageEvent, ToolCallEvent)
CATALOGUE: Mapping[str, type[Event]] = {kind.type: kind for family in FAMILIES for kind in family.__subclasses__()}
"""Every event, by its `type`."""

OnEvent: TypeAlias = Callable[[Event], object]
"""What may be given as `on_event`: called with each event; its result is not looked at."""


def receiver_problem(value: object) -> str:
    """Why `value` cannot be called with an event; empty if it can."""
    if isinstance(value, type) or not callable(value):
        return "a function or another callable of one event"
    try:
        inspect.signature(value).bind(None)
    except TypeError:
        return "a callable that can be called with one event alone"
    except (ValueError, NameError):
        pass  # some builtins have no signature, some annotations no meaning at run time
    is_async = inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(type(value).__call__)
    return "a plain function, since nobody would await an async one" if is_async else ""
