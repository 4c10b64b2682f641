"""What is asked of a model and what it answers: values that both the engine and the clients know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, NotRequired, TypeAlias, TypedDict, get_args

from turnkit_django.core.content import Json, ToolCall, shown
from turnkit_django.core.usage import Usage

EmptyContent: TypeAlias = Literal["null", "absent", "empty"]

MOST = 2**31 - 1
"""The greatest number, of seconds too, that a limit may be: columns of turns hold no more."""


class ChatFunction(TypedDict):
    name: str
    arguments: str


class ChatCall(TypedDict):
    """A call as it is sent back: a safe, unique id and arguments that parse to an object."""

    id: str
    type: Literal["function"]
    function: ChatFunction


class ChatMessage(TypedDict):
    """One message of a request in the chat-completions form, already paired and ordered for strict providers.

    `provider` and `provider_data` never reach the wire as such: the data (JSON text of extra fields of the message,
    such as signed reasoning) is merged into the message for the provider that made it and dropped for any other.
    """

    role: Literal["user", "assistant", "tool"]
    content: str | None
    tool_calls: NotRequired[list[ChatCall]]
    tool_call_id: NotRequired[str]
    provider: NotRequired[str]
    provider_data: NotRequired[str]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it. `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to a model.

    Attributes:
        model: A litellm model string, such as `openai/gpt-5-mini`.
        messages: The conversation, without the system prompt.
        instructions: The system prompt; empty means none.
        tools: What the model may call.
        max_output_tokens: Bound of the answer; always sent.
        thinking: `{"effort": "low|medium|high"}` and/or `{"budget": int}`, or None.
        metadata: `turn_id`, `conversation_id`, `request_id`.
    """

    model: str
    messages: tuple[ChatMessage, ...]
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int = 8192
    thinking: Mapping[str, Json] | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def tool_names(self) -> list[str]:
        return [tool.name for tool in self.tools]

    @property
    def prompt_chars(self) -> int:
        """Characters of the system prompt, of the messages and of the arguments of calls in them."""
        said = sum(len(message["content"] or "") for message in self.messages)
        asked = [call["function"]["arguments"] for message in self.messages for call in message.get("tool_calls", [])]
        return len(self.instructions) + said + sum(map(len, asked))


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a model answered, as received: nothing is repaired or guessed.

    Attributes:
        text: The visible answer; empty if there was none.
        calls: The tools the model asks for, in order.
        finish_reason: `stop`, `tool_calls`, `length`, `content_filter` or whatever the provider said; "" if nothing.
        usage: Tokens; None if the provider reported none.
        cost: US dollars; None if unknown.
        thinking: Reasoning text that may be shown to a person.
        refusal: The provider's own words when it refused.
        provider: Who answered, such as `openai`.
        provider_data: JSON text to replay to that provider, or None.
        model: The model name the provider returned.
        is_empty: True if the response had no choice at all.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""
    usage: Usage | None = None
    cost: Decimal | None = None
    thinking: str = ""
    refusal: str = ""
    provider: str = ""
    provider_data: str | None = None
    model: str = ""
    is_empty: bool = False


def form_problem(form: Mapping[str, object]) -> str:
    """What is wrong with a row of `REQUEST_FORMS`; empty if nothing is."""
    content, length = form.get("empty_content", "null"), form.get("call_id_length")
    if content not in get_args(EmptyContent):
        texts = ", ".join(f'"{text}"' for text in get_args(EmptyContent))
        return f"expected `empty_content` to be one of the texts {texts}, got {shown(content)}"
    if length is not None and (not isinstance(length, int) or not 6 <= length <= 40):
        got = f"{shown(length)} ({type(length).__name__})"
        return f"expected `call_id_length` to be a whole number from 6 to 40, or None, got {got}"
    return ""
