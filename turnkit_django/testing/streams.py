"""A whole answer cut into the server-sent events of a streaming one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def events_of(completion: Mapping[str, Any], *, has_usage: bool) -> bytes:
    """The events of a `chat.completion` body, usage in a last chunk without choices, `[DONE]` at the end."""
    chunks = list(_chunks(completion, has_usage=has_usage))
    return b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks) + b"data: [DONE]\n\n"


def _chunks(completion: Mapping[str, Any], *, has_usage: bool) -> Iterator[dict[str, Any]]:
    if "error" in completion:
        yield dict(completion)
        return
    head = {key: completion[key] for key in ("id", "created", "model") if key in completion}
    head["object"] = "chat.completion.chunk"
    for choice in completion.get("choices") or []:
        for delta in _deltas(choice.get("message") or {}):
            yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice.get("finish_reason")}]}
    if has_usage and "usage" in completion:
        yield {**head, "choices": [], "usage": completion["usage"]}


def _deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    extra = {key: value for key, value in message.items() if key not in {"role", "content", "tool_calls"}}
    yield {"role": "assistant", "content": "", **extra}
    text = message.get("content") or ""
    for start in range(0, len(text), 8):
        yield {"content": text[start : start + 8]}
    for number, call in enumerate(message.get("tool_calls") or []):
        function = call.get("function") or {}
        arguments = function.get("arguments") or ""
        half = len(arguments) // 2
        first = {**call, "index": number, "function": {**function, "arguments": arguments[:half]}}
        yield {"tool_calls": [first]}
        yield {"tool_calls": [{"index": number, "function": {"arguments": arguments[half:]}}]}
