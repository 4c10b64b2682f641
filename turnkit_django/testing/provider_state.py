"""Which provider state was handed out with which answer, so that its replay can be checked (rule V12)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from threading import Lock
from typing import Any

from turnkit_django.clients.chat import STANDARD_CALL_KEYS, STANDARD_MESSAGE_KEYS

# Readable reasoning is not signed: leaving it out is allowed, sending it to another provider is not.
_READABLE = frozenset({"reasoning", "reasoning_content"})
_NOTHING: tuple[Any, ...] = (None, {}, [], "")


def state_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """The provider's own fields of a message, one per path.

    litellm moves fields in and out of `provider_specific_fields`, so a field in there counts as if it stood beside it.
    """
    state = dict(_own_fields(message, known=STANDARD_MESSAGE_KEYS))
    for number, call in enumerate(message.get("tool_calls") or []):
        if isinstance(call, Mapping):
            own = _own_fields(call, known=STANDARD_CALL_KEYS)
            state |= {f"tool_calls[{number}].{key}": value for key, value in own}
    return state


def _own_fields(fields: Mapping[str, Any], *, known: frozenset[str]) -> Iterator[tuple[str, Any]]:
    nested = fields.get("provider_specific_fields")
    for key, value in {**(nested if isinstance(nested, Mapping) else {}), **fields}.items():
        if key not in known and key != "provider_specific_fields" and value not in _NOTHING:
            yield key, value


class ProviderStates:
    """The ledger of provider state, indexed: each replayed message asks it. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._handed_out: set[tuple[str, str, str]] = set()
        self._signed: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def record(self, message: Mapping[str, Any], provider: str) -> None:
        """Note an answer of `provider` that is about to be handed out."""
        state = state_of(message)
        signed = _signed(state)
        with self._lock:
            self._handed_out |= {(provider, key, _text(value)) for key, value in state.items()}
            alike = self._signed.setdefault((provider, _likeness(message)), [])
            if signed not in alike:
                alike.append(signed)

    def problems(self, message: Mapping[str, Any], provider: str) -> list[str]:
        """What is wrong with the state of a replayed message that is about to reach `provider`."""
        if message.get("role") != "assistant":
            return []
        sent = state_of(message)
        signed = _signed(sent)
        with self._lock:
            alike = list(self._signed.get((provider, _likeness(message)), ()))
            foreign = [key for key, value in sent.items() if (provider, key, _text(value)) not in self._handed_out]
        if foreign:
            return [f"{', '.join(sorted(foreign))} was changed, or not made by {provider or 'this provider'!r}"]
        if alike and signed not in alike:
            missing = sorted({key for state in alike for key in state} - set(signed))
            return [f"{', '.join(missing) or 'provider state'} was handed out with this message and is missing"]
        return []


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=repr)


def _signed(state: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key not in _READABLE}


def _likeness(message: Mapping[str, Any]) -> str:
    """What stays the same between an answer and its replay: ids and broken arguments are rewritten."""
    content = message.get("content")
    functions = [call.get("function") for call in message.get("tool_calls") or [] if isinstance(call, Mapping)]
    names = [function.get("name") if isinstance(function, Mapping) else None for function in functions]
    return json.dumps([content.strip() if isinstance(content, str) else "", names])
