"""Stored messages → the messages of a request. Pure, and the same for every request of a conversation.

Turn by turn: the messages of an ended turn stand together in lane order, a turn's own come last, behind those of a turn
that it tries again, and nothing stands between a message with calls and its results, whenever those were stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import accumulate, count
from math import inf

from turnkit_django.core.content import Part, as_text, text_of
from turnkit_django.core.requests import ChatCall, ChatMessage
from turnkit_django.store.reads import StoredMessage

_SAFE_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_SAFE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CUT_NOTE = "Your last answer was cut off before its end. Answer again, shorter."
_NO_RESULT = as_text({"error": "No result of this call was stored. Whether it took effect is unknown."})
_GOES_ON = "(The conversation goes on.)"


def project(messages: Iterable[StoredMessage], *, own_turn_id: str, id_length: int | None = None) -> list[ChatMessage]:
    """The messages of a request.

    Args:
        messages: What the turn may see.
        own_turn_id: Whose request it is.
        id_length: If the model wants call ids of exactly that many letters and digits.
    """
    found = list(messages)
    anchors = _anchors(found)
    ordered = sorted(found, key=lambda message: _position(message, own_turn_id, anchors))
    results = _Results(found)
    namer = _CallIds(id_length)
    projected = [item for message in ordered for item in _project(message, results, namer)]
    if projected and projected[0]["role"] != "user":
        projected.insert(0, {"role": "user", "content": _GOES_ON})
    if not projected or projected[-1]["role"] == "assistant":  # nothing new was said: providers refuse such an end
        projected.append({"role": "user", "content": _GOES_ON})
    return projected


def _anchors(messages: Iterable[StoredMessage]) -> dict[str | None, int]:
    """Where each turn stands among messages of no turn: not before a turn that precedes it in the lane."""
    places = sorted({(message.place, message.anchor, message.turn_id) for message in messages if message.place})
    highest = accumulate((anchor for _, anchor, _ in places), max)
    return {turn_id: anchor for (_, _, turn_id), anchor in zip(places, highest, strict=True)}


def _position(
    message: StoredMessage, own_turn_id: str, anchors: dict[str | None, int]
) -> tuple[bool, int, bool, float, int]:
    own = message.turn_id == own_turn_id or message.is_retried
    anchor = anchors.get(message.turn_id, message.anchor)
    return own, anchor, message.turn_id is not None, message.place or inf, message.sequence


class _Results:
    """Tool results by the turn and key of their call."""

    def __init__(self, messages: Iterable[StoredMessage]) -> None:
        self._parts: dict[tuple[str | None, str], list[tuple[int, Part]]] = {}
        for message in sorted(messages, key=lambda message: message.sequence):
            for part in message.parts:
                if part["type"] == "tool_result":
                    known = self._parts.setdefault((message.turn_id, str(part["key"])), [])
                    known.append((message.sequence, part))

    def of(self, call: Part, message: StoredMessage) -> Part | None:
        """The next result after the message: where turns were erased, keys of different turns may be equal."""
        known = self._parts.get((message.turn_id, str(call["key"])), [])
        return next((part for sequence, part in known if sequence > message.sequence), None)


def _project(message: StoredMessage, results: _Results, namer: _CallIds) -> Iterator[ChatMessage]:
    text = text_of(message.parts).rstrip()
    if message.role == "user" and text:
        yield {"role": "user", "content": text}
    if message.role == "assistant":
        yield from _project_answer(message, text, results, namer)


def _project_answer(message: StoredMessage, text: str, results: _Results, namer: _CallIds) -> Iterator[ChatMessage]:
    proposed = [part for part in message.parts if part["type"] == "tool_call"]
    is_cut = message.finish_reason in {"length", "error"} and not proposed
    if text or proposed:
        yield from _answer(message, text, proposed, results, namer)
    if is_cut:
        yield {"role": "user", "content": _CUT_NOTE}


def _answer(
    message: StoredMessage,
    text: str,
    proposed: list[Part],
    results: _Results,
    namer: _CallIds,
) -> Iterator[ChatMessage]:
    answer: ChatMessage = {"role": "assistant", "content": text or None}
    _add_provider_state(answer, message)
    calls = [_call(part, namer.name(part, owner=message.turn_id)) for part in proposed]
    if calls:
        answer["tool_calls"] = calls
    yield answer
    for part, call in zip(proposed, calls, strict=True):
        result = results.of(part, message)
        content = str(result["text"]) if result else _NO_RESULT
        yield {"role": "tool", "tool_call_id": call["id"], "content": content if content.strip() else "(no output)"}


def _add_provider_state(answer: ChatMessage, message: StoredMessage) -> None:
    for part in message.parts:
        if part["type"] == "provider":
            answer["provider"] = str(part["kind"])
            answer["provider_data"] = str(part["data"])


def _call(part: Part, call_id: str) -> ChatCall:
    name = str(part["name"])
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name if _SAFE_NAME.fullmatch(name) else _safe_name(name), "arguments": _arguments(part)},
    }


def _safe_name(name: str) -> str:
    """A name that a provider accepts for a call to a tool that does not exist under the name the model wrote."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unnamed"


def _arguments(part: Part) -> str:
    """The arguments as written if they are a JSON object; a provider would refuse anything else."""
    text = str(part["arguments"])
    try:
        is_object = isinstance(json.loads(text, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        is_object = False
    return text if is_object else "{}"


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


class _CallIds:
    """Ids that are safe and unique in the request: as received where possible, else made of the call's turn and key.

    Providers repeat ids, and keys are unique in their turn only.
    """

    def __init__(self, length: int | None) -> None:
        self._length = length
        self._used: set[str] = set()

    def name(self, part: Part, *, owner: str | None) -> str:
        received = str(part["id"])
        keeps = self._length is None and _SAFE_ID.fullmatch(received) and received not in self._used
        chosen = received if keeps else self._made(f"{owner}:{part['key']}")
        self._used.add(chosen)
        return chosen

    def _made(self, call: str) -> str:
        digests = (sha256(f"{salt}:{call}".encode()).hexdigest() for salt in count())
        made = (f"call_{each[:32]}" if self._length is None else each[: self._length] for each in digests)
        return next(each for each in made if each not in self._used)
