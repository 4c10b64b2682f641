"""Messages between conversations: how one is stored once, and which turn has read it."""

from __future__ import annotations

from copy import copy

from django.db.models import QuerySet

from turnkit_django import conf
from turnkit_django.errors import BudgetError, ToolError
from turnkit_django.models import Conversation, Delivery, Turn
from turnkit_django.models.querysets import DeliveryQuerySet
from turnkit_django.store import connections, notices, outbox
from turnkit_django.store.transitions.writes import advance_lane


def delivery_rows() -> DeliveryQuerySet:
    return Delivery.objects.using(connections.alias())


def stored_delivery(draft: Delivery, *, agent_name: str, source_turn: Turn | None) -> Delivery:
    """The row of a message, stored now or by an earlier use of its key.

    Args:
        agent_name: Of the conversation that sends it.
        source_turn: The agent's turn that sends it; None if the application does.

    Raises:
        ToolError: If the key was used for another message, of which it reveals nothing.
        BudgetError: If more messages of agents than `MAX_HOPS` would have led to it.
    """
    draft = copy(draft)
    draft.source_turn = source_turn
    draft.hops = source_turn.hops + 1 if source_turn else 0
    with_key = delivery_rows().filter(source=draft.source_id, key=draft.key, target_turn__isnull=True)
    stored = with_key.first()
    if stored is None:
        _require_hops(draft)
        stored = _inserted(draft, with_key, agent_name)
    if stored.pk != draft.pk:
        _require_same(stored, draft)
    elif stored.delivered_at is None:  # also after a commit that was not heard: nor was its wake-up
        outbox.wake_for_messages()
    return stored


def _inserted(draft: Delivery, with_key: QuerySet[Delivery], agent_name: str) -> Delivery:
    """Somebody may be storing the same key at this moment: the first one wins, the other waits for it."""
    delivery_rows().bulk_create([draft], ignore_conflicts=True)
    stored = with_key.get()
    if stored.pk == draft.pk:
        outbox.tell(notices.sent(stored, agent_name))
    return stored


def _require_hops(draft: Delivery) -> None:
    limit = conf.get().MAX_HOPS
    if draft.hops > limit:
        raise BudgetError(
            f"{draft.source_id} cannot send to {draft.destination_id}: {draft.hops} messages of agents, one after "
            f"another, would have led to it; the setting MAX_HOPS allows {limit}"
        )


def _require_same(stored: Delivery, draft: Delivery) -> None:
    names = ("destination_id", "source_turn_id", "text", "principal")
    if any(getattr(stored, name) != getattr(draft, name) for name in names):
        raise ToolError(
            f"key {draft.key!r} of {draft.source_id} belongs to another message; use a new key for a new message"
        )


def mark_read(lane: Conversation, turn: Turn, *, boundary: int, request_id: str) -> int:
    """The next model call of the turn includes the unread messages that it may see; the hops of the turn with them."""
    unread = delivery_rows().filter(destination=lane.pk, message__sequence__lte=boundary).unread()
    found = list(unread.order_by("message__sequence"))
    ids = [delivery.pk for delivery in found]
    delivery_rows().filter(pk__in=ids).update(receiving_turn=turn.pk, request_id=request_id, error=None)
    advance_lane(lane, unread_count=max(lane.unread_count - len(found), 0))
    outbox.tell(*(notices.applied(delivery, turn, request_id) for delivery in found))
    return max([turn.hops, *(delivery.hops for delivery in found)])


def mark_unread(lane: Conversation, turn: Turn) -> None:
    """The counted model call of the turn was never sent: what it would have included is unread again."""
    if turn.attempt_id is None:
        return
    count = delivery_rows().filter(receiving_turn=turn.pk, request_id=turn.request_id).update(request_id="")
    if count:
        advance_lane(lane, unread_count=lane.unread_count + count)
