"""Rows that are not stored yet, of checked input."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any

from django.db.models import Model

from turnkit_django import conf
from turnkit_django.agents import Agent, get_agent
from turnkit_django.agents.options import check_thinking
from turnkit_django.core import ids
from turnkit_django.core.content import Json, clean_json, clean_text, shown, text_part
from turnkit_django.errors import ConfigError, InputError
from turnkit_django.models import Conversation, Message, Turn
from turnkit_django.models.message import Kind, Role
from turnkit_django.store import reads

_LONGEST_KEY = 255  # it is indexed
TURN_OPTIONS = frozenset({"model", "thinking", "context", "principal", "on_event"})


def new_conversation(
    agent: Agent,
    *,
    subject: Model | None = None,
    model: str | None = None,
    metadata: Mapping[str, Json] | None = None,
    context: Mapping[str, Json] | None = None,
    principal: Json = None,
) -> Conversation:
    """A row that is not stored yet, of checked input."""
    kind, key = _subject(subject)
    return Conversation(
        id=ids.new_conversation_id(),
        agent_name=agent.name,
        model=_model(model),
        subject_type=kind,
        subject_id=key,
        metadata=json_object("metadata", metadata),
        context=json_object("context", context),
        principal=json_value("principal", principal),
    )


def new_turn(conversation: Conversation, options: dict[str, Any]) -> Turn:
    if unknown := sorted(set(options) - TURN_OPTIONS):
        known = ["key", *sorted(TURN_OPTIONS)]
        raise InputError(f"{conversation.pk}: unknown turn options {unknown}; known: {', '.join(known)}")
    agent = get_agent(conversation.agent_name)
    settings = conf.get()
    turn_id = ids.new_turn_id()
    context = options.get("context")
    principal = options.get("principal")
    return Turn(
        id=turn_id,
        root_id=turn_id,
        conversation=conversation,
        agent_name=agent.name,
        agent_version=agent.version,
        agent_fingerprint=agent.fingerprint,
        model=_model(options.get("model")) or conversation.model or agent.model or settings.DEFAULT_MODEL,
        context=json_object("context", conversation.context if context is None else context),
        principal=json_value("principal", conversation.principal if principal is None else principal),
        options=_request_options(agent, options),
        max_iterations=settings.MAX_ITERATIONS if agent.max_iterations is None else agent.max_iterations,
        max_depth=settings.MAX_DEPTH if agent.max_depth is None else agent.max_depth,
        max_output_tokens=agent.max_output_tokens or settings.MAX_OUTPUT_TOKENS,
        timeout=agent.timeout,
    )


def _request_options(agent: Agent, options: dict[str, Any]) -> dict[str, Json]:
    """An explicit None of the turn switches the agent's thinking off."""
    thinking = options.get("thinking", agent.thinking)
    try:
        checked = check_thinking(agent.name, thinking)
    except ConfigError as error:
        raise InputError(str(error)) from error
    if checked is not None:
        return {"thinking": dict(checked)}
    return {"thinking": None} if "thinking" in options else {}


def new_message(conversation: Conversation, text: str, *, metadata: Json) -> Message:
    require_text(text)
    return Message(
        id=ids.new_message_id(),
        conversation=conversation,
        role=Role.USER.value,
        kind=Kind.TEXT.value,
        content=[text_part(text)],
        metadata=metadata,
    )


def require_text(text: str) -> None:
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"expected the message to be a text that is not blank, got {shown(text)}")


def task_text(task: str, given: object) -> str:
    """The message of a run: the task, and below it the input as readable JSON, if there is one."""
    require_text(task)
    if given is None:
        return task
    words = given if isinstance(given, str) else json.dumps(json_value("input", given), indent=2, ensure_ascii=False)
    return f"Task:\n{task}\n\nInput:\n{words}"


def checked_key(where: str, key: object) -> str:
    """An idempotency key as it is stored.

    Args:
        where: The id of the conversation, for the message.
    """
    if not isinstance(key, str) or not key.strip() or len(key) > _LONGEST_KEY:
        wanted = f"a text of 1 to {_LONGEST_KEY} characters that is not blank"
        is_long = isinstance(key, str) and len(key) > _LONGEST_KEY
        got = f"a text of {len(str(key))} characters" if is_long else f"{shown(key)} ({type(key).__name__})"
        raise InputError(f"{where}: expected `key` to be {wanted}, got {got}")
    return clean_text(key)


def require_saved(conversation: Conversation) -> None:
    if conversation._state.adding or conversation.pk is None:
        raise InputError("the conversation is not saved; open one with `agent.conversation()`")


def saved_conversation(name: str, value: object) -> Conversation:
    """An argument that names a conversation to send to."""
    if not isinstance(value, Conversation) or value._state.adding or value.pk is None:
        raise InputError(f"expected `{name}` to be a saved Conversation, got {shown(value)}")
    try:
        return reads.conversation(value.pk)
    except Conversation.DoesNotExist as gone:
        raise InputError(f"expected `{name}` to be a saved Conversation: {gone}") from gone


def _subject(subject: Model | None) -> tuple[str, str]:
    if subject is None:
        return "", ""
    if not isinstance(subject, Model) or subject.pk is None or subject._state.adding:
        raise InputError(f"expected `subject` to be a saved model instance, got {shown(subject)}")
    return subject._meta.label_lower, str(subject.pk)


def _model(name: object) -> str:
    if name is None:
        return ""
    if not isinstance(name, str) or not name.strip():
        got = f"{shown(name)} ({type(name).__name__})"
        raise InputError(
            f"expected `model` to be a litellm model string, such as `openai/gpt-5-mini`, or None, got {got}"
        )
    return clean_text(name)


def json_object(name: str, value: object) -> Json:
    if value is not None and not isinstance(value, Mapping):
        got = f"{shown(value)} ({type(value).__name__})"
        raise InputError(f"expected `{name}` to be JSON: an object (a dict), got {got}")
    return json_value(name, value or {})


def json_value(name: str, value: object) -> Json:
    try:
        return clean_json(value)
    except RecursionError as error:
        raise InputError(f"expected `{name}` to be JSON, got what holds itself or is nested too deep") from error
    except TypeError as error:
        where = f"at `{name}{place:.200}`: " if (place := _place_of_fault(value)) else ""
        raise InputError(f"expected `{name}` to be JSON: {where}{error}") from error


def _place_of_fault(value: object) -> str:
    """Where in `value` the first thing stands that is no JSON, as subscripts; empty if it is the value itself."""
    items: Iterable[tuple[object, object]] = enumerate(value) if isinstance(value, list | tuple) else ()
    if isinstance(value, Mapping):
        items = itertools.takewhile(lambda item: isinstance(item[0], str), value.items())
    for key, item in items:
        try:
            clean_json(item)
        except TypeError:
            return f"[{shown(key)}]{_place_of_fault(item)}"
    return ""
