"""The chat-completions form, both ways, as pure functions: `ModelRequest` to body, response to `ModelReply`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from turnkit_django.clients.base import model_error
from turnkit_django.core.content import ToolCall, clean_json
from turnkit_django.core.requests import ChatMessage, EmptyContent, ModelReply, ModelRequest, ToolSpec, form_problem
from turnkit_django.core.usage import Usage
from turnkit_django.errors import ConfigError, ModelError, PermanentModelError, TransientModelError

Body: TypeAlias = "dict[str, Any]"

# Everything else in a message is the provider's own state: signed reasoning, reasoning items, thought signatures.
STANDARD_MESSAGE_KEYS = frozenset(
    {"role", "content", "tool_calls", "tool_call_id", "function_call", "refusal", "annotations", "audio", "images"}
)
STANDARD_CALL_KEYS = frozenset({"id", "type", "function", "index"})

_MOST_TOKENS = 10**10  # far more than any model reads; columns hold the sum of many calls
_STATUS = re.compile("[45][0-9][0-9]")
_PERMANENT_CODES = frozenset(
    {
        "authentication_error",
        "content_filter",
        "content_policy_violation",
        "context_length_exceeded",
        "insufficient_quota",
        "invalid_api_key",
        "invalid_request_error",
        "model_not_found",
        "not_found_error",
        "permission_error",
    }
)


@dataclass(frozen=True, slots=True)
class RequestForm:
    """What one model wants of the form of a request.

    Attributes:
        call_id_length: Call ids have exactly that many letters and digits; None is 1 to 40 of `A-Za-z0-9_-`.
        empty_content: The content of a message that only calls tools: `null`, left out (`absent`) or `""` (`empty`).
    """

    call_id_length: int | None = None
    empty_content: EmptyContent = "null"

    @property
    def call_id_pattern(self) -> str:
        return "[A-Za-z0-9_-]{1,40}" if self.call_id_length is None else f"[A-Za-z0-9]{{{self.call_id_length}}}"


def form_for(model: str, *, forms: Mapping[str, Mapping[str, Any]]) -> RequestForm:
    """The form set for `model` in `REQUEST_FORMS`: the exact name, else the longest prefix ending in `*`.

    Raises:
        ConfigError: If the form has a value that no request can take.
    """
    prefixes = [name for name in forms if name.endswith("*") and model.startswith(name[:-1])]
    name = model if model in forms else max(prefixes, key=len, default="")
    if not name:
        return RequestForm()
    if problem := form_problem(forms[name]):
        raise ConfigError(f"REQUEST_FORMS[{name!r}]: {problem}")
    return RequestForm(**forms[name])


def request_body(request: ModelRequest, *, provider: str, form: RequestForm | None = None) -> Body:
    """The body of a chat-completions request; `model` is the full litellm name.

    Args:
        request: What to ask.
        provider: Who is asked: only its own state is replayed.
        form: What the model wants; the default form if None.
    """
    form = form or RequestForm()
    messages = [_message(message, provider=provider, form=form) for message in request.messages]
    if request.instructions.strip():
        messages.insert(0, {"role": "system", "content": request.instructions})
    body: Body = {"model": request.model, "messages": messages, "max_tokens": request.max_output_tokens}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    return body


def _tool(tool: ToolSpec) -> Body:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def _message(message: ChatMessage, *, provider: str, form: RequestForm) -> Body:
    body: Body = {key: value for key, value in message.items() if key not in {"provider", "provider_data"}}
    if "tool_calls" in message:
        body["tool_calls"] = [dict(call) for call in message["tool_calls"]]
        if not (message.get("content") or "").strip():
            _leave_empty(body, form=form)
    if message.get("provider") == provider and message.get("provider_data"):
        _merge_state(body, state=json.loads(message["provider_data"]))
    return body


def _leave_empty(body: Body, *, form: RequestForm) -> None:
    if form.empty_content == "absent":
        body.pop("content", None)
    else:
        body["content"] = None if form.empty_content == "null" else ""


def _merge_state(body: Body, *, state: Body) -> None:
    of_calls = state.pop("tool_calls", [])
    body.update({key: value for key, value in state.items() if key not in STANDARD_MESSAGE_KEYS})
    calls = body.get("tool_calls", [])
    if len(calls) != len(of_calls):  # a signature on the wrong call is worse than none
        return
    for call, extra in zip(calls, of_calls, strict=True):
        call.update({key: value for key, value in (extra or {}).items() if key not in STANDARD_CALL_KEYS})


def parse_reply(response: Mapping[str, Any], *, provider: str, cost: Decimal | None = None) -> ModelReply:
    """Read a chat-completions response, whatever is missing in it.

    Raises:
        TransientModelError: The response holds an error that is, or may be, over later.
        PermanentModelError: The response holds an error that the same request would meet again.
    """
    choices = response.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    usage, model = usage_of(response), _text(response.get("model"))
    if error := _error_in(response) or _error_in(choice) or _error_in(_dict(choice).get("provider_specific_fields")):
        error.usage = usage.counts() if usage else None
        raise error
    if not isinstance(choice, Mapping):
        return ModelReply(usage=usage, cost=cost, provider=provider, model=model, is_empty=True)
    message = _dict(choice.get("message"))
    return ModelReply(
        text=_content_text(message.get("content")),
        calls=tuple(_call(call) for call in _list(message.get("tool_calls"))),
        finish_reason=_finish_reason(choice),
        usage=usage,
        cost=cost,
        thinking=_text(message.get("reasoning_content")) or _text(message.get("reasoning")),
        refusal=_text(message.get("refusal")) or _text(_dict(message.get("provider_specific_fields")).get("refusal")),
        provider=provider,
        provider_data=_state(message),
        model=model,
    )


def _finish_reason(choice: Mapping[str, Any]) -> str:
    """As the server wrote it: litellm turns every reason it does not know into `stop`, and keeps the word beside it."""
    native = _dict(choice.get("provider_specific_fields")).get("native_finish_reason")
    return _text(native) or _text(choice.get("finish_reason"))


def _call(call: object) -> ToolCall:
    function = _dict(_dict(call).get("function"))
    arguments = function.get("arguments")
    return ToolCall(
        id=_text(_dict(call).get("id")),
        name=_text(function.get("name")),
        # Some servers send the arguments as an object instead of text.
        arguments=json.dumps(arguments, default=str) if isinstance(arguments, dict | list) else _text(arguments),
    )


def _content_text(content: object) -> str:
    if isinstance(content, list):
        return "".join(_text(_dict(part).get("text")) for part in content)
    return _text(content)


def _state(message: Mapping[str, Any]) -> str | None:
    """What must be sent back unchanged to the provider that sent it, as JSON text; None if there is nothing."""
    state = _extra(message, known=STANDARD_MESSAGE_KEYS)
    of_calls = [_extra(_dict(call), known=STANDARD_CALL_KEYS) for call in _list(message.get("tool_calls"))]
    if any(of_calls):
        state["tool_calls"] = of_calls
    try:
        # What JSON or UTF-8 cannot carry cannot be sent back.
        return json.dumps(state) if state and clean_json(state) == state else None
    except (TypeError, RecursionError):
        return None


def _extra(fields: Mapping[str, Any], *, known: frozenset[str]) -> Body:
    extra = {key: value for key, value in fields.items() if key not in known and value not in (None, {}, [], "")}
    if isinstance(own := extra.get("provider_specific_fields"), Mapping):
        # litellm repeats the refusal in there, or leaves empty places.
        own = {key: value for key, value in own.items() if value is not None and key != "refusal"}
        extra = {key: value for key, value in extra.items() if key != "provider_specific_fields"}
        extra |= {"provider_specific_fields": own} if own else {}
    return extra


def usage_of(response: Mapping[str, Any]) -> Usage | None:
    """The tokens of a response in exclusive buckets; None if the provider did not say, or said what cannot be.

    Zero for everything counts as not said: litellm writes that where a provider reports nothing.
    """
    counts = _dict(response.get("usage"))
    if not _are_sound(counts):
        return None
    prompt, completion = _count(counts.get("prompt_tokens")), _count(counts.get("completion_tokens"))
    if not prompt and not completion:
        return None
    of_prompt = _dict(counts.get("prompt_tokens_details"))
    cached = _count(of_prompt.get("cached_tokens")) or _count(counts.get("cache_read_input_tokens"))
    written = _count(of_prompt.get("cache_creation_tokens")) or _count(counts.get("cache_creation_input_tokens"))
    thinking = _count(_dict(counts.get("completion_tokens_details")).get("reasoning_tokens"))
    return Usage(
        input_tokens=max(0, prompt - cached - written),
        output_tokens=max(0, completion - thinking),
        cached_tokens=cached,
        cache_write_tokens=written,
        thinking_tokens=thinking,
    )


def _are_sound(counts: Mapping[str, Any]) -> bool:
    """Whether no count is beyond what any call uses; one such count puts the others in doubt."""
    nested = [*_dict(counts.get("prompt_tokens_details")).values()]
    nested += _dict(counts.get("completion_tokens_details")).values()
    return all(count <= _MOST_TOKENS for count in [*counts.values(), *nested] if isinstance(count, int))


def _error_in(holder: object) -> ModelError | None:
    error = _dict(holder).get("error")
    error = {"message": error} if isinstance(error, str) and error else _dict(error)
    if not any(error.values()):  # some servers add an empty error object to good answers
        return None
    code = next((error[key] for key in ("code", "status", "status_code", "type") if error.get(key)), None)
    text = f"the provider answered with an error: {_text(error.get('message')) or json.dumps(error, default=str)}"
    status = int(code) if isinstance(code, int | str) and _STATUS.fullmatch(str(code)) else None
    if status is not None:
        return model_error(text, status_code=status)
    if {str(error.get("code")), str(error.get("type"))} & _PERMANENT_CODES:
        return PermanentModelError(text, is_lost=False)
    return TransientModelError(text, is_lost=False)


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
