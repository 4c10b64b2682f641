"""Events of model calls, of messages and of calls of tools."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from turnkit_django.core.events.base import Explained, MessageEvent, ModelCallEvent, ToolCallEvent
from turnkit_django.core.usage import Usage


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
class SubAgentDelegated(ToolCallEvent):
    """A call has started a turn of another agent, in a conversation of its own.

    Attributes:
        child_turn_id: The turn.
        child_conversation_id: Its conversation.
        child_agent_name: Who does it.
        task_chars: Characters of the task.
    """

    type = "sub_agent.delegated"
    child_turn_id: str
    child_conversation_id: str
    child_agent_name: str
    task_chars: int


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
