"""What workers and maintenance look at among messages between conversations."""

from __future__ import annotations

from django.db.models import Exists, Min, OuterRef, Q
from django.db.models.functions import Greatest

from turnkit_django import conf
from turnkit_django.models import Conversation, Delivery, Turn
from turnkit_django.models.querysets import DeliveryQuerySet, StatementTime
from turnkit_django.store import connections, reads

_DUE_SINCE = Greatest("created_at", "not_before")
"""A message that was set aside is due again after that, behind those that came meanwhile."""


def _rows() -> DeliveryQuerySet:
    return Delivery.objects.using(connections.alias())


def _pending() -> DeliveryQuerySet:
    return _rows().undelivered().timely()


def _to_continue() -> DeliveryQuerySet:
    """Unread messages that a turn should be made for, and those that were unread too often, to be given up."""
    busy = Turn.objects.using(connections.alias()).filter(conversation=OuterRef("destination")).busy()
    is_open = Q(attempts__lte=conf.get().MAX_RECOVERIES) | Q(not_before__isnull=False)
    return _rows().unanswered().timely().filter(is_open, ~Exists(busy))


def delivery(delivery_id: str) -> Delivery:
    """The row as it is now.

    Raises:
        Delivery.DoesNotExist: Names it.
    """
    with reads.naming(delivery_id):
        return _rows().get(pk=delivery_id)


def pending(*, limit: int) -> list[Delivery]:
    """Messages that are due to be delivered, with their destinations: first those that are due for longest."""
    rows = _pending().select_related("destination").order_by(_DUE_SINCE, "created_at", "pk")
    return list(rows[:limit])


def lanes_to_continue(*, limit: int) -> list[Conversation]:
    """Conversations with an unread message and nothing that runs or waits to run: first where it is due for longest."""
    lanes = _to_continue().values("destination").annotate(since=Min(_DUE_SINCE)).order_by("since", "destination")
    ids = [lane["destination"] for lane in lanes[:limit]]
    found = Conversation.objects.using(connections.alias()).in_bulk(ids) if ids else {}
    return [found[each] for each in ids if each in found]


def unanswered(conversation_id: str) -> list[str]:
    """The unread messages of a conversation that no unfinished turn is meant to read."""
    return list(_rows().filter(destination=conversation_id).unanswered().values_list("pk", flat=True))


def has_work() -> bool:
    """Whether a message is due to be delivered, or a lane to be continued."""
    return _pending().exists() or _to_continue().exists()


def seconds_to_next() -> float | None:
    """Until the nearest time that a message waits for; None without one."""
    nearest = (
        (_rows().undelivered() | _rows().unread())
        .filter(not_before__gt=StatementTime())
        .annotate(now=StatementTime())
        .order_by("not_before")
        .values_list("not_before", "now")
        .first()
    )
    return None if nearest is None or nearest[0] is None else (nearest[0] - nearest[1]).total_seconds()
