"""Delivers messages and has them read: each row in its own transaction, an error on one stops no other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from turnkit_django import conf
from turnkit_django.engine.drafts import new_turn
from turnkit_django.engine.run import error, said
from turnkit_django.models import Conversation, Delivery, Turn
from turnkit_django.store import inboxes, transitions

logger = logging.getLogger("turnkit")

_SET_ASIDE_SECONDS = 60.0


@dataclass(slots=True)
class Tally:
    """What one look did.

    Attributes:
        done: Rows that were handled.
        errors: Rows that could not be; each is logged and set aside.
    """

    done: int = 0
    errors: int = 0


def look() -> bool:
    """Deliver what is pending and have it read; whether there was anything."""
    batch = conf.get().MAINTENANCE_BATCH
    return deliver_pending(limit=batch).done + continue_lanes(limit=batch).done > 0


def deliver_pending(*, limit: int) -> Tally:
    """Put pending messages into the transcripts of their conversations, at most so many."""
    tally, passed_over = Tally(), set()
    for delivery in inboxes.pending(limit=limit):
        # One that somebody holds takes a second to find out: once for each conversation is enough.
        if delivery.destination_id not in passed_over and not _delivered(delivery, tally):
            passed_over.add(delivery.destination_id)
    return tally


def continue_lanes(*, limit: int) -> Tally:
    """Start a turn in each conversation that has unread messages and nothing that runs or waits to run."""
    tally = Tally()
    for conversation in inboxes.lanes_to_continue(limit=limit):
        _continued(conversation, tally)
    return tally


def _delivered(delivery: Delivery, tally: Tally) -> bool:
    draft = _draft(delivery.destination)
    return _handled(tally, lambda: transitions.deliver(delivery.pk, draft=draft), lambda: [delivery.pk])


def _draft(conversation: Conversation) -> Turn | None:
    """The turn that would read the message. Without one it is delivered; the next look says what is wrong."""
    try:
        return new_turn(conversation, {})
    except Exception:
        return None


def _continued(conversation: Conversation, tally: Tally) -> None:
    _handled(
        tally,
        lambda: transitions.continue_lane(conversation.pk, draft=new_turn(conversation, {})),
        lambda: inboxes.unanswered(conversation.pk),
    )


def _handled(tally: Tally, handle: Callable[[], object], concerned: Callable[[], list[str]]) -> bool:
    try:
        is_done = handle() is not None
    except Exception as problem:
        tally.errors += 1
        _set_aside(concerned, problem)
        return False
    tally.done += is_done
    return is_done


def _set_aside(concerned: Callable[[], list[str]], problem: Exception) -> None:
    """Look at the rows again later, and say on them why."""
    ids: list[str] = []
    try:
        ids = concerned()
        why = error(type(problem).__name__, said(problem))
        transitions.set_deliveries_aside(ids, error=why, seconds=_SET_ASIDE_SECONDS)
    except Exception as worse:
        _log("set aside", ids, worse)
    _log("handled", ids, problem)


def _log(what: str, ids: list[str], problem: Exception) -> None:
    told = {"event": "reconcile.error", "delivery_ids": ids}
    text = conf.clean_traceback(problem)
    logger.error("deliveries %s could not be %s: %s", ", ".join(ids) or "-", what, text, extra=told)
