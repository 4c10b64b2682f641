"""Delivers messages and has them read: each row in its own transaction, an error on one stops no other."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from turnkit_django import conf
from turnkit_django.core.content import Json
from turnkit_django.engine.drafts import new_turn
from turnkit_django.engine.scanning import Subject, Tally, handle_each, log, note
from turnkit_django.models import Conversation, Delivery, Turn
from turnkit_django.store import inboxes, transitions
from turnkit_django.store.moves import giving_way


def look() -> Tally:
    """Deliver what is pending and have it read; waits for nobody who holds a lane."""
    batch = conf.get().MAINTENANCE_BATCH
    with giving_way():
        return deliver_pending(limit=batch) + continue_lanes(limit=batch)


def deliver_pending(*, limit: int) -> Tally:
    """Put pending messages into the transcripts of their conversations, at most so many."""
    held: set[str] = set()  # lanes: one look at each tells it of all their messages

    def deliver(delivery: Delivery) -> Delivery | None:
        if delivery.destination_id in held:
            return None
        delivered = transitions.deliver(delivery.pk, draft=_draft(delivery.destination))
        if delivered is None:
            held.add(delivery.destination_id)
        return delivered

    return handle_each(
        inboxes.pending,
        deliver,
        lambda delivery, problem: _failed([delivery.pk], problem),
        key=attrgetter("pk"),
        batch=limit,
    )


def continue_lanes(*, limit: int) -> Tally:
    """Start a turn in each conversation that has unread messages and nothing that runs or waits to run."""
    return handle_each(
        inboxes.lanes_to_continue,
        lambda lane: transitions.continue_lane(lane.pk, draft=new_turn(lane, {})),
        lambda lane, problem: _failed(inboxes.unanswered(lane.pk), problem),
        key=attrgetter("pk"),
        batch=limit,
    )


def _draft(conversation: Conversation) -> Turn | None:
    """The turn that would read the message. Without one it is delivered; the next look says what is wrong."""
    try:
        return new_turn(conversation, {})
    except Exception:
        return None


def _failed(ids: Sequence[str], problem: Exception) -> bool:
    """Look at the rows again later, and say on them why; whether that could be said."""
    of = Subject(f"deliveries {', '.join(ids) or '-'}", {"delivery_ids": list(ids)})
    log("handled", problem, of)

    def write(why: Json, seconds: float) -> object:
        return transitions.set_deliveries_aside(ids, error=why, seconds=seconds)

    return note(problem, write, of)
