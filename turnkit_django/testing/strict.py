"""The rules of the strictest providers, checked on a chat-completions body: V1 to V14.

V1   call ids are non-empty texts and unique in the request
V2   an assistant message with calls is followed at once by one tool message per call, in order
V3   no tool message without its call in the assistant message before its group
V4   no empty or blank text; no assistant message with neither text nor calls; no text beside calls as configured
V5   tool messages have text
V6   the first message after the system prompt is from the user, the last from user or tool
V7   arguments of replayed calls parse to a JSON object
V8   function names are well formed; a call that nobody answered is to a listed tool
V9   call ids match the model's pattern
V10  the body is strict JSON in UTF-8
V11  at most four cache marks, none on an empty block
V12  provider state is replayed unchanged and complete to its provider, and to no other
V13  a history with calls comes with tools; at most 128
V14  tool parameters are objects with properties, and every `$ref` resolves
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from turnkit_django.core.requests import EmptyContent
from turnkit_django.testing.provider_state import ProviderStates

Message: TypeAlias = "Mapping[str, Any]"

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CACHE_MARKS = 4
_TOOLS = 128


class StrictRequestError(AssertionError):
    """A request broke the strict rules; the message names each rule and place."""

    def __init__(self, violations: Sequence[str]) -> None:
        super().__init__("the request breaks the strict rules:\n" + "\n".join(violations))
        self.violations = tuple(violations)


def check_request(
    body: Mapping[str, Any],
    *,
    call_id_pattern: str = "[A-Za-z0-9_-]{1,40}",
    empty_content: EmptyContent | None = None,
    states: ProviderStates | None = None,
    provider: str = "",
) -> list[str]:
    """What a strict provider would refuse: one line each, such as `V1 messages[3].tool_calls[0].id: empty`.

    Args:
        body: The decoded body of the request.
        call_id_pattern: What this model's call ids must match in full.
        empty_content: The one form of "no text beside calls" this model takes; None is both `null` and `absent`.
        states: The provider state handed out so far, for V12; without it V12 is not checked.
        provider: Who receives this request, for V12.
    """
    messages = [message for message in body.get("messages") or [] if isinstance(message, Mapping)]
    history = list(_history(messages))
    tools = list(body.get("tools") or [])
    found = [
        *_ids(history, pattern=call_id_pattern),
        *_pairs(history),
        *_texts(messages, empty_content=empty_content),
        *_ends(history),
        *_calls(history, tools=tools),
        *_encoding(body),
        *_cache_marks(body),
        *_tools(tools, has_calls=any(_calls_of(message) for _, message in history)),
    ]
    if states is not None:
        found += [f"V12 {place}: {text}" for place, message in history for text in states.problems(message, provider)]
    return found


def _history(messages: Sequence[Message]) -> Iterator[tuple[str, Message]]:
    """Each message after the system prompt, with its place."""
    for number, message in enumerate(messages):
        if message.get("role") not in {"system", "developer"}:
            yield f"messages[{number}]", message


def _calls_of(message: Message) -> list[Mapping[str, Any]]:
    calls = message.get("tool_calls") if message.get("role") == "assistant" else None
    return [call if isinstance(call, Mapping) else {} for call in calls or []]


def _places(history: Sequence[tuple[str, Message]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for place, message in history:
        for number, call in enumerate(_calls_of(message)):
            yield f"{place}.tool_calls[{number}]", call


def _ids(history: Sequence[tuple[str, Message]], *, pattern: str) -> Iterator[str]:
    seen: Counter[str] = Counter()
    for place, call in _places(history):
        call_id = call.get("id")
        if not isinstance(call_id, str) or not call_id:
            yield f"V1 {place}.id: empty or missing, got {call_id!r}"
            continue
        seen[call_id] += 1
        if seen[call_id] > 1:
            yield f"V1 {place}.id: {call_id!r:.80} was used before in this request"
        if not re.fullmatch(pattern, call_id):
            yield f"V9 {place}.id: {call_id!r:.80} does not match {pattern}"


def _pairs(history: Sequence[tuple[str, Message]]) -> Iterator[str]:
    owner, wanted = "", list[object]()
    for place, message in [*history, ("the end", {"role": ""})]:
        if message.get("role") == "tool":
            answered = message.get("tool_call_id")
            if answered not in wanted:
                yield f"V3 {place}: answers {answered!r:.80}, which the assistant message before did not call"
                continue
            if answered != wanted[0]:
                yield f"V2 {place}: answers {answered!r:.80} out of the order of the calls"
            wanted.remove(answered)
            continue
        if wanted:
            yield f"V2 {owner}: no answer to {', '.join(map(repr, wanted)):.200} before {place}"
        owner, wanted = place, [call.get("id") for call in _calls_of(message)]


def _texts(messages: Sequence[Message], *, empty_content: EmptyContent | None) -> Iterator[str]:
    for number, message in enumerate(messages):
        place, content = f"messages[{number}]", message.get("content")
        if message.get("role") == "tool":
            if not isinstance(content, str) or not content.strip():
                yield f"V5 {place}: expected text in a tool message, got {content!r:.80}"
        elif _calls_of(message) and content in (None, ""):
            form = "empty" if content == "" else "null" if "content" in message else "absent"
            if form not in ({"null", "absent"} if empty_content is None else {empty_content}):
                yield f"V4 {place}: no text beside calls is {form!r}, this model takes {empty_content or 'null'!r}"
        elif content in (None, "", []):
            yield f"V4 {place}: neither text nor calls"
        else:
            yield from _blank_blocks(content, place=place)


def _blank_blocks(content: object, *, place: str) -> Iterator[str]:
    if isinstance(content, str) and not content.strip():
        yield f"V4 {place}.content: blank text {content!r:.40}"
    for number, block in enumerate(content if isinstance(content, list) else []):
        if isinstance(block, Mapping) and block.get("type") == "text" and not str(block.get("text") or "").strip():
            yield f"V4 {place}.content[{number}]: blank text block"


def _ends(history: Sequence[tuple[str, Message]]) -> Iterator[str]:
    if not history:
        yield "V6 messages: no message besides the system prompt"
        return
    (first, first_message), (last, last_message) = history[0], history[-1]
    if first_message.get("role") != "user":
        yield f"V6 {first}: the first message is from {first_message.get('role')!r}, expected 'user'"
    if last_message.get("role") not in {"user", "tool"}:
        yield f"V6 {last}: the last message is from {last_message.get('role')!r}, expected 'user' or 'tool'"


def _calls(history: Sequence[tuple[str, Message]], *, tools: Sequence[Any]) -> Iterator[str]:
    answered = [message.get("tool_call_id") for _, message in history if message.get("role") == "tool"]
    listed = [_function(tool).get("name") for tool in tools]
    for place, call in _places(history):
        name, arguments = _function(call).get("name"), _function(call).get("arguments")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            yield f"V8 {place}.function.name: {name!r:.80} does not match {_NAME.pattern}"
        elif name not in listed and call.get("id") not in answered:
            yield f"V8 {place}.function.name: {name!r} is not in the tools and was not answered"
        if not _is_object(arguments):
            yield f"V7 {place}.function.arguments: expected the text of a JSON object, got {arguments!r:.80}"


def _function(holder: object) -> Mapping[str, Any]:
    function = holder.get("function") if isinstance(holder, Mapping) else None
    return function if isinstance(function, Mapping) else {}


def _is_object(arguments: object) -> bool:
    try:
        return isinstance(arguments, str) and isinstance(json.loads(arguments, parse_constant=_refuse), dict)
    except ValueError:
        return False


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _encoding(body: Mapping[str, Any]) -> Iterator[str]:
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError) as error:  # a lone surrogate is a ValueError too
        yield f"V10 body: {error}"
        return
    if "\\u0000" in text.replace("\\\\", ""):  # an escaped backslash in front would make it plain text
        yield "V10 body: holds a NUL character"


def _cache_marks(body: Mapping[str, Any]) -> Iterator[str]:
    marked = [(place, block) for place, block in _blocks(body, place="body") if block.get("cache_control")]
    if len(marked) > _CACHE_MARKS:
        yield f"V11 body: {len(marked)} cache marks, expected at most {_CACHE_MARKS}"
    for place, block in marked:
        if block.get("type") == "text" and not str(block.get("text") or "").strip():
            yield f"V11 {place}: a cache mark on an empty block"


def _blocks(value: object, *, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        yield place, value
        for key, item in value.items():
            yield from _blocks(item, place=f"{place}.{key}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _blocks(item, place=f"{place}[{number}]")


def _tools(tools: Sequence[Any], *, has_calls: bool) -> Iterator[str]:
    if has_calls and not tools:
        yield "V13 tools: empty, but the history has calls"
    if len(tools) > _TOOLS:
        yield f"V13 tools: {len(tools)}, expected at most {_TOOLS}"
    names = Counter(str(_function(tool).get("name")) for tool in tools)
    for number, tool in enumerate(tools):
        place, name = f"tools[{number}].function", _function(tool).get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            yield f"V8 {place}.name: {name!r:.80} does not match {_NAME.pattern}"
        elif names[name] > 1:
            yield f"V8 {place}.name: {name!r} is listed {names[name]} times"
        yield from _schema(_function(tool).get("parameters"), place=f"{place}.parameters")


def _schema(schema: object, *, place: str) -> Iterator[str]:
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        yield f"V14 {place}: expected type object, got {schema!r:.80}"
        return
    if not isinstance(schema.get("properties"), Mapping):
        yield f"V14 {place}: expected properties"
    for where, part in _blocks(schema, place=place):
        reference = part.get("$ref")
        if isinstance(reference, str) and not _resolves(reference, schema=schema):
            yield f"V14 {where}: {reference!r:.80} does not resolve"


def _resolves(reference: str, *, schema: Mapping[str, Any]) -> bool:
    if not reference.startswith("#"):
        return False
    found: object = schema
    for step in reference.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or name not in found:
            return False
        found = found[name]
    return True
