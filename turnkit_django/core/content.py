"""Message parts: the typed pieces a stored message is made of, and the cleaning of text before it is stored.

Stored shapes (JSON objects in `Message.content`):

- `{"type": "text", "text": str}`
- `{"type": "thinking", "text": str}`
- `{"type": "tool_call", "id": str, "key": str, "name": str, "arguments": str}`: `id` as the provider sent it,
  `key` the `call_key` of the execution, `arguments` the raw text
- `{"type": "tool_result", "tool_call_id": str, "key": str, "text": str, "error": bool}`
- `{"type": "provider", "kind": str, "data": str}`: opaque state of one provider (signed reasoning), as JSON text,
  so that it survives byte for byte
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Part: TypeAlias = "dict[str, Json]"

_LONGEST_INT = 4096  # bits; Python reads no more than 4,300 digits back
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean_text(text: str) -> str:
    """Replace what PostgreSQL and UTF-8 cannot hold (NUL, lone surrogates) by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def is_storable(text: str) -> bool:
    """Whether `clean_text` would leave it as it is."""
    return _UNSTORABLE.search(text) is None


def shown(value: object, *, longest: int = 80) -> str:
    """How a wrong value is quoted in a message, whatever its `repr` does."""
    try:
        return f"{value!r:.{longest}}"
    except Exception:
        # Python refuses to print an int of more than 4,300 digits.
        size = f" of {value.bit_length()} bits" if isinstance(value, int) else " that cannot be printed"
        article = "an" if type(value).__name__[:1] in "aeiou" else "a"
        return f"{article} {type(value).__name__}{size}"


def clean_json(value: object) -> Json:
    """A JSON value whose keys and texts can be stored; tuples become lists.

    Raises:
        TypeError: If `value` holds something JSON does not know, NaN or an infinity included, or an int of more
            digits than Python reads back.
    """
    match value:
        case None | bool():
            return value
        case int() | float():
            return _number(value)
        case str():
            return clean_text(value)
        case Mapping():
            return {clean_text(_key(key)): clean_json(item) for key, item in value.items()}
        case list() | tuple():
            return [clean_json(item) for item in value]
    raise TypeError(f"a {type(value).__name__} is not JSON: {shown(value)}")


def _number(value: int | float) -> int | float:
    if isinstance(value, float) and not math.isfinite(value):
        raise TypeError(f"{value!r} is not a JSON number")
    if isinstance(value, int) and value.bit_length() > _LONGEST_INT:
        raise TypeError(f"{shown(value)} has too many digits for JSON")
    return value


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"JSON keys are text, got {shown(key)} ({type(key).__name__})")
    return key


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call a model asks for.

    Attributes:
        id: The provider's call id as received; may be empty, long, or equal to another's.
        name: The tool's name as received; may be empty or unknown.
        arguments: The raw argument text as received.
    """

    id: str
    name: str
    arguments: str


def call_key(call_id: str, *, iteration: int, ordinal: int) -> str:
    """The bounded, unique key of a call within its turn: SHA-256 of the id, the model call and the place in it.

    Providers repeat ids from one response to the next, so the number of the model call is part of it.
    """
    return sha256(f"{iteration}:{ordinal}:{call_id}".encode(errors="replace")).hexdigest()


def text_part(text: str) -> Part:
    return {"type": "text", "text": clean_text(text)}


def result_part(*, call_id: str, key: str, text: str, error: bool) -> Part:
    return {
        "type": "tool_result",
        "tool_call_id": clean_text(call_id),
        "key": key,
        "text": clean_text(text),
        "error": error,
    }


def text_of(parts: Iterable[Part]) -> str:
    """The text parts, joined by newlines."""
    return "\n".join(str(part["text"]) for part in parts if part.get("type") == "text")


def as_text(result: Json) -> str:
    """What the model reads of a tool's result: JSON, never empty."""
    return json.dumps(result, ensure_ascii=False, separators=(", ", ": "))
