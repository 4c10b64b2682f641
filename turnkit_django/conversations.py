"""Verbs that open, feed and run conversations: check the input, make the rows, hand over."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from turnkit_django import observers
from turnkit_django.agents import Agent
from turnkit_django.core.content import Json, shown
from turnkit_django.core.usage import Usage
from turnkit_django.engine import runner
from turnkit_django.engine.drafts import (
    checked_key,
    json_object,
    new_conversation,
    new_message,
    new_turn,
    require_saved,
    require_text,
    saved_conversation,
    task_text,
)
from turnkit_django.errors import InputError
from turnkit_django.failpoints import reach
from turnkit_django.models import Conversation, Message, Turn
from turnkit_django.runs import Run
from turnkit_django.store import connections, reads, transitions
from turnkit_django.store.claims import Claimed

_INSTEAD = (
    "a worker runs a submitted turn, and cannot call it; use the agent's `on_event`, the setting `ON_EVENT` or a signal"
)


def open_conversation(agent: Agent, **opened: Any) -> Conversation:
    """A saved conversation of the agent. Arguments and errors as of `Agent.conversation`."""
    return transitions.open_conversation(new_conversation(agent, **opened))


def say(conversation: Conversation, text: str, *, metadata: Mapping[str, Json] | None = None) -> Message:
    require_saved(conversation)
    message = new_message(conversation, text, metadata=json_object("metadata", metadata))
    return transitions.say(message)


def prepare(conversation: Conversation, text: str | None, *, key: str | None = None, **options: Any) -> Turn:
    return _start(conversation, text, key=key, options=options, is_submission=False)


def submit(
    conversation: Conversation,
    text: str,
    *,
    key: str | None = None,
    callback: Conversation | None = None,
    **options: Any,
) -> Turn:
    require_text(text)
    if options.get("on_event") is not None:
        raise InputError(f"{conversation.pk}: expected no `on_event` for a turn that is submitted: {_INSTEAD}")
    turn = _start(conversation, text, key=key, options=options, is_submission=True, callback=callback)
    reach("submitted")
    return turn


def ask(conversation: Conversation, text: str, *, key: str | None = None, **options: Any) -> Turn:
    require_text(text)
    return run_here(conversation, text, key=key, **options)


def run_here(conversation: Conversation, text: str | None = None, *, key: str | None = None, **options: Any) -> Turn:
    connections.require_no_transaction(f"a turn of {conversation.pk}")
    require_saved(conversation)
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


def submit_turn(turn: Turn, *, callback: Conversation | None = None) -> Turn:
    if turn.follower is not None:
        raise InputError(f"{turn.pk} was prepared with `on_event`, so it cannot be submitted: {_INSTEAD}")
    told = _callback(callback)
    transitions.submit(turn.pk, callback_id=told.pk if told else None)
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


def submit_run(agent: Agent, task: str, *, callback: Conversation | None = None, **options: Any) -> Run:
    turn = _for_task(agent, task, options, is_submission=True, callback=callback)
    reach("submitted")
    return Run(turn)


def _for_task(
    agent: Agent, task: str, options: dict[str, Any], *, is_submission: bool, callback: Conversation | None = None
) -> Turn:
    task = task_text(task, options.pop("input", None))
    parent = options.pop("parent", None)
    opened = {name: options.pop(name) for name in ("subject", "metadata", "context", "principal") if name in options}
    conversation = new_conversation(agent, **opened)
    draft, message = _draft(conversation, task, key=None, options=options)  # all is checked before a row is written
    draft.callback = _callback(callback)
    if parent is not None:
        _join_tree(draft, parent)
    return transitions.start(draft, message=message, is_submission=is_submission, opening=conversation)


def _join_tree(draft: Turn, parent: object) -> None:
    """A turn beside the others of a tree: no call of theirs has asked for it."""
    given = parent.turn if isinstance(parent, Run) else parent
    if not isinstance(given, Turn):
        raise InputError(f"expected `parent` to be a Run or a stored Turn, got {shown(parent)}")
    turn = reads.turn(given.pk)
    draft.root_id = turn.root_id or turn.pk
    draft.deadline_at, draft.max_depth = turn.deadline_at, turn.max_depth


def _start(
    conversation: Conversation,
    text: str | None,
    *,
    key: str | None,
    options: dict[str, Any],
    is_submission: bool,
    callback: Conversation | None = None,
) -> Turn:
    require_saved(conversation)
    draft, message = _draft(conversation, text, key=key, options=options)
    draft.callback = _callback(callback)
    turn = transitions.start(draft, message=message, is_submission=is_submission)
    turn.follower = turn.follower or draft.follower
    observers.follow_known(turn.pk, turn.follower)
    return turn


def _draft(
    conversation: Conversation, text: str | None, *, key: str | None, options: dict[str, Any]
) -> tuple[Turn, Message | None]:
    """Rows that are not stored yet, of checked input."""
    submission_key = None if key is None else checked_key(conversation.pk, key)
    message = None if text is None else new_message(conversation, text, metadata={})
    turn = new_turn(conversation, options)
    turn.submission_key = submission_key
    turn.follower = observers.follow(turn.pk, options.get("on_event"))
    return turn, message


def _callback(callback: Conversation | None) -> Conversation | None:
    return None if callback is None else saved_conversation("callback", callback)
