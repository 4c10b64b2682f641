"""Verbs that open, feed and run conversations: check the input, make the rows, hand over."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from django.db.models import Model

from turnkit_django import conf, observers
from turnkit_django.agents import Agent, get_agent
from turnkit_django.agents.options import check_thinking
from turnkit_django.core import ids
from turnkit_django.core.content import Json, clean_json, clean_text, shown, text_part
from turnkit_django.core.usage import Usage
from turnkit_django.engine import runner
from turnkit_django.errors import ConfigError, InputError
from turnkit_django.failpoints import reach
from turnkit_django.models import Conversation, Message, Turn
from turnkit_django.models.message import Kind, Role
from turnkit_django.runs import Run
from turnkit_django.store import connections, reads, transitions
from turnkit_django.store.claims import Claimed

_OPTIONS = frozenset({"model", "thinking", "context", "principal", "on_event"})
_INSTEAD = (
    "a worker runs a submitted turn, and cannot call it; use the agent's `on_event`, the setting `ON_EVENT` or a signal"
)
_LONGEST_KEY = 255  # it is indexed


def open_conversation(
    agent: Agent,
    *,
    subject: Model | None = None,
    model: str | None = None,
    metadata: Mapping[str, Json] | None = None,
    context: Mapping[str, Json] | None = None,
    principal: Json = None,
) -> Conversation:
    """A saved conversation of the agent.

    Args:
        subject: A saved model instance it is about; kept as type (`app_label.model`) and key.
        model: Instead of the agent's.
        metadata: The application's own facts.
        context: Default run context of its turns, for tools.
        principal: Identity under which its turns act; any JSON.

    Raises:
        InputError: If the subject is not saved, the model is not a text, metadata or context is not a JSON object, or
            the principal is not JSON.
    """
    opened = _conversation(agent, subject=subject, model=model, metadata=metadata, context=context, principal=principal)
    return transitions.open_conversation(opened)


def say(conversation: Conversation, text: str, *, metadata: Mapping[str, Json] | None = None) -> Message:
    _require_saved(conversation)
    message = _message(conversation, text, metadata=_object("metadata", metadata))
    return transitions.say(message)


def prepare(conversation: Conversation, text: str | None, *, key: str | None = None, **options: Any) -> Turn:
    return _start(conversation, text, key=key, options=options, is_submission=False)


def submit(conversation: Conversation, text: str, *, key: str | None = None, **options: Any) -> Turn:
    _require_text(text)
    if options.get("on_event") is not None:
        raise InputError(f"{conversation.pk}: expected no `on_event` for a turn that is submitted: {_INSTEAD}")
    turn = _start(conversation, text, key=key, options=options, is_submission=True)
    reach("submitted")
    return turn


def ask(conversation: Conversation, text: str, *, key: str | None = None, **options: Any) -> Turn:
    _require_text(text)
    return run_here(conversation, text, key=key, **options)


def run_here(conversation: Conversation, text: str | None = None, *, key: str | None = None, **options: Any) -> Turn:
    connections.require_no_transaction(f"a turn of {conversation.pk}")
    _require_saved(conversation)
    draft, message = _draft(conversation, text, key=key, options=options)
    claimed = transitions.claim_new(draft, runner.holder(), message=message)
    if isinstance(claimed, Claimed):
        observers.follow_known(claimed.turn.pk, draft.follower)
        runner.run_claimed(claimed)
        return reads.turn(claimed.turn.pk)
    return claimed


def run_turn(turn: Turn) -> Turn:
    if reads.refreshed(turn).status == Turn.Status.PENDING:
        runner.run_inline(turn.pk)
    return reads.refreshed(turn)


def submit_turn(turn: Turn) -> Turn:
    if turn.follower is not None:
        raise InputError(f"{turn.pk} was prepared with `on_event`, so it cannot be submitted: {_INSTEAD}")
    transitions.submit(turn.pk)
    reach("submitted")
    return reads.refreshed(turn)


def usage(conversation: Conversation) -> Usage:
    return reads.usage(reads.of_conversation(conversation.pk))


def cost(conversation: Conversation) -> Decimal | None:
    return reads.cost(reads.of_conversation(conversation.pk))


def prepare_run(agent: Agent, task: str, **options: Any) -> Run:
    return Run(_for_task(agent, task, options, is_submission=False))


def run(agent: Agent, task: str, **options: Any) -> Run:
    connections.require_no_transaction(f"a run of agent {agent.name!r}")
    return Run(run_turn(_for_task(agent, task, options, is_submission=False)))


def submit_run(agent: Agent, task: str, **options: Any) -> Run:
    turn = _for_task(agent, task, options, is_submission=True)
    reach("submitted")
    return Run(turn)


def _for_task(agent: Agent, task: str, options: dict[str, Any], *, is_submission: bool) -> Turn:
    _require_text(task)
    opened = {name: options.pop(name) for name in ("subject", "metadata", "context", "principal") if name in options}
    conversation = _conversation(agent, **opened)
    draft, message = _draft(conversation, task, key=None, options=options)  # all is checked before a row is written
    return transitions.start(draft, message=message, is_submission=is_submission, opening=conversation)


def _start(
    conversation: Conversation, text: str | None, *, key: str | None, options: dict[str, Any], is_submission: bool
) -> Turn:
    _require_saved(conversation)
    draft, message = _draft(conversation, text, key=key, options=options)
    turn = transitions.start(draft, message=message, is_submission=is_submission)
    turn.follower = turn.follower or draft.follower
    observers.follow_known(turn.pk, turn.follower)
    return turn


def _conversation(
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
        metadata=_object("metadata", metadata),
        context=_object("context", context),
        principal=_json("principal", principal),
    )


def _draft(
    conversation: Conversation, text: str | None, *, key: str | None, options: dict[str, Any]
) -> tuple[Turn, Message | None]:
    """Rows that are not stored yet, of checked input."""
    if key is not None and (not isinstance(key, str) or not key.strip() or len(key) > _LONGEST_KEY):
        wanted = f"a text of 1 to {_LONGEST_KEY} characters that is not blank"
        is_long = isinstance(key, str) and len(key) > _LONGEST_KEY
        got = f"a text of {len(key)} characters" if is_long else f"{shown(key)} ({type(key).__name__})"
        raise InputError(f"{conversation.pk}: expected `key` to be {wanted}, got {got}")
    message = None if text is None else _message(conversation, text, metadata={})
    turn = _turn(conversation, options)
    turn.submission_key = None if key is None else clean_text(key)
    turn.follower = observers.follow(turn.pk, options.get("on_event"))
    return turn, message


def _turn(conversation: Conversation, options: dict[str, Any]) -> Turn:
    if unknown := sorted(set(options) - _OPTIONS):
        known = ["key", *sorted(_OPTIONS)]
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
        context=_object("context", conversation.context if context is None else context),
        principal=_json("principal", conversation.principal if principal is None else principal),
        options=_request_options(agent, options),
        max_iterations=settings.MAX_ITERATIONS if agent.max_iterations is None else agent.max_iterations,
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


def _message(conversation: Conversation, text: str, *, metadata: Json) -> Message:
    _require_text(text)
    return Message(
        id=ids.new_message_id(),
        conversation=conversation,
        role=Role.USER.value,
        kind=Kind.TEXT.value,
        content=[text_part(text)],
        metadata=metadata,
    )


def _require_saved(conversation: Conversation) -> None:
    if conversation._state.adding or conversation.pk is None:
        raise InputError("the conversation is not saved; open one with `agent.conversation()`")


def _require_text(text: str) -> None:
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"expected the message to be a text that is not blank, got {shown(text)}")


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


def _object(name: str, value: object) -> Json:
    if value is not None and not isinstance(value, Mapping):
        got = f"{shown(value)} ({type(value).__name__})"
        raise InputError(f"expected `{name}` to be JSON: an object (a dict), got {got}")
    return _json(name, value or {})


def _json(name: str, value: object) -> Json:
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
