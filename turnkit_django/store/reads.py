"""Snapshots, as plain values; from the database that is written to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import cast

from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Case, Count, F, OrderBy, Q, QuerySet, Sum, When
from django.db.models.functions import Greatest

from turnkit_django.core.content import Part
from turnkit_django.core.states import OPEN, TurnState
from turnkit_django.core.usage import Usage
from turnkit_django.errors import LaneBusy
from turnkit_django.models import Conversation, Message, ToolExecution, Turn
from turnkit_django.models.querysets import StatementTime, TurnQuerySet
from turnkit_django.store import connections, outbox

WAKE_LIFETIME = timedelta(seconds=30)
"""A wake-up that led to no claim by then counts as lost."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as a request is made from it.

    Attributes:
        anchor: What its turn saw when it was first claimed; its own number for a message of no turn.
        place: The place of its turn in the lane; 0 for a message of no turn.
        is_retried: Whether it is of a turn that the asking one tries again.
    """

    sequence: int
    turn_id: str | None
    anchor: int
    place: int
    role: str
    parts: Sequence[Part]
    provider: str
    finish_reason: str
    is_retried: bool = False


def _turns() -> TurnQuerySet:
    return Turn.objects.using(connections.alias())


def turn(turn_id: str) -> Turn:
    """The row as it is now.

    Raises:
        Turn.DoesNotExist: Names it.
    """
    with naming(turn_id):
        return _turns().get(pk=turn_id)


def conversation(conversation_id: str) -> Conversation:
    """The row as it is now.

    Raises:
        Conversation.DoesNotExist: Names it.
    """
    with naming(conversation_id):
        return Conversation.objects.using(connections.alias()).get(pk=conversation_id)


def is_pause_requested(turn_id: str) -> bool:
    return _turns().filter(pk=turn_id, pause_requested=True).exists()


def refreshed(turn: Turn) -> Turn:
    """The same object with what its row holds now. Raises as `turn`."""
    with naming(turn.pk):
        turn.refresh_from_db(using=connections.alias())
    return turn


@contextmanager
def naming(row_id: object) -> Iterator[None]:
    """Say which row is not there."""
    try:
        yield
    except ObjectDoesNotExist as gone:
        text = f"{row_id} is not in the database: it was deleted, or the transaction that stored it was rolled back"
        raise type(gone)(text) from None


def token_of(turn_id: str) -> str | None:
    return _turns().filter(pk=turn_id).values_list("claim_token", flat=True).first()


def transcript(seen_by: Turn) -> list[StoredMessage]:
    """What the turn may see, by number, and its own messages.

    A submitted turn sees what stood in the conversation when it was first claimed: messages of no turn, and of turns
    that had ended. A turn that was not submitted sees what stood there when it was made, also of unfinished turns, and
    the results of those calls, whenever they were stored.
    """
    rows = (
        Message.objects.using(connections.alias())
        .filter(_visible(seen_by) | Q(turn=seen_by), conversation=seen_by.conversation_id)
        .order_by("sequence")
        .values_list(
            "sequence",
            "turn_id",
            "turn__context_sequence",
            "turn__lane_position",
            "role",
            "content",
            "provider",
            "metadata__finish_reason",
        )
    )
    tried = set(retried(seen_by))
    return [_stored(*row, is_retried=row[1] in tried) for row in rows]


def retried(turn: Turn) -> list[str]:
    """The turns that it tries again, one after another."""
    found: list[str] = []
    before: str | None = turn.retry_of_id
    while before is not None:
        found.append(before)
        before = _turns().filter(pk=before).values_list("retry_of_id", flat=True).first()
    return found


def _visible(seen_by: Turn) -> Q:
    before = Q(sequence__lte=seen_by.context_sequence)
    if not seen_by.is_background:
        calling = _turns().filter(
            messages__sequence__lte=seen_by.context_sequence, conversation=seen_by.conversation_id
        )
        return before | Q(role="tool", turn__in=calling)
    # What stands before a claimed head of a lane has ended: places are told apart without a clock.
    earlier = Q(turn__isnull=True) | Q(turn__lane_position__lt=seen_by.lane_position)
    if seen_by.started_at is None:  # a preview: the boundary would be set now
        return earlier & (Q(turn__isnull=True) | Q(turn__completed_at__isnull=False))
    return before & earlier


def _stored(
    sequence: int,
    turn_id: str | None,
    anchor: int | None,
    place: int | None,
    role: str,
    content: object,
    provider: str,
    finish_reason: object,
    *,
    is_retried: bool,
) -> StoredMessage:
    return StoredMessage(
        sequence=sequence,
        turn_id=turn_id,
        anchor=sequence if anchor is None else anchor,
        place=place or 0,
        role=role,
        parts=cast("list[Part]", content),
        provider=provider,
        finish_reason=str(finish_reason or ""),
        is_retried=is_retried,
    )


def tree(root_id: str) -> TurnQuerySet:
    """All turns of the tree under a root turn."""
    return _turns().filter(root=root_id).order_by("created_at", "pk")


def of_conversation(conversation_id: str) -> TurnQuerySet:
    return _turns().filter(conversation=conversation_id)


def messages(turns: TurnQuerySet) -> QuerySet[Message]:
    """The messages of all conversations of the turns."""
    return Message.objects.using(connections.alias()).filter(conversation__in=turns.values("conversation"))


def executions(turns: TurnQuerySet) -> QuerySet[ToolExecution]:
    return ToolExecution.objects.using(connections.alias()).filter(turn__in=turns.values("pk"))


def calls(turn_id: str) -> list[ToolExecution]:
    """All executions of a turn, in call order."""
    return list(ToolExecution.objects.using(connections.alias()).filter(turn=turn_id).order_by("ordinal"))


def child_of(execution_id: str) -> Turn | None:
    """The turn that a call has started."""
    return _turns().filter(parent_execution=execution_id).first()


def of_tree(root_id: str, turn_ids: Sequence[str]) -> dict[str, Turn]:
    """Those of the turns that belong to the tree, by id."""
    return {turn.pk: turn for turn in tree(root_id).filter(pk__in=turn_ids)}


def has_conversation(conversation_id: str) -> bool:
    return Conversation.objects.using(connections.alias()).filter(pk=conversation_id).exists()


def usage(turns: QuerySet[Turn]) -> Usage:
    """The sum over the turns."""
    names = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "thinking_tokens")
    sums = turns.aggregate(**{name: Sum(name, default=0) for name in (*names, "unknown_attempts")})
    return Usage(**sums)


def cost(turns: QuerySet[Turn]) -> Decimal | None:
    """The sum over the turns in US dollars; None if one of them is unknown."""
    sums = turns.aggregate(known=Sum("cost", default=Decimal(0)), unknown=Count("pk", filter=Q(cost__isnull=True)))
    return None if sums["unknown"] else sums["known"]


def require_idle(conversation_id: str, *, unless: str = "") -> None:
    """Refuse to run a turn now in a conversation that has a started turn or submitted work.

    Raises:
        LaneBusy: Names that turn.
    """
    if (busy := _turns().filter(conversation=conversation_id).exclude(pk=unless).busy().first()) is not None:
        raise LaneBusy(
            f"{conversation_id} is busy with {busy.pk} ({busy.status}); use `submit` to have the turn run in order, or "
            "run it when the other has ended"
        )


# What maintenance looks at: first what is due for longest. A row that was set aside is due again after that, so that it
# comes behind those that were due meanwhile, however many fail.


def _due_since(*columns: str) -> OrderBy:
    """The latest of the times."""
    return OrderBy(Greatest(*columns, "next_check_at"), nulls_first=True)


def expired(*, limit: int) -> list[tuple[str, str, int]]:
    """Turns of dead workers: id, token, attempts so far."""
    rows = _turns().expired().order_by(_due_since("lease_expires_at"), "pk")[:limit]
    return [(turn.pk, turn.claim_token or "", turn.attempts) for turn in rows]


def claimed_by(worker: str) -> list[tuple[str, str, int]]:
    """Running turns whose claim names this process (`host:pid`): id, token, attempts so far."""
    rows = _turns().filter(status=TurnState.RUNNING, claimed_by__startswith=f"{worker}:").order_by("pk")
    return [(turn.pk, turn.claim_token or "", turn.attempts) for turn in rows]


def ready(*, limit: int) -> list[str]:
    """Waiting turns whose time has come and that miss nothing."""
    rows = (
        _turns()
        .placed()
        .checkable()
        .filter(
            Q(not_before__isnull=True) | Q(not_before__lte=StatementTime()),
            status=TurnState.WAITING,
            pending_dependencies=0,
        )
    )
    return list(rows.order_by(_due_since("not_before"), "pk").values_list("pk", flat=True)[:limit])


def miscounted(*, limit: int) -> list[str]:
    """Waiting turns that count more dependencies than they have targets: perhaps some were erased, and nobody counted
    them down.
    """
    awaited = Count("waits", filter=Q(waits__target__status__in=OPEN))
    waiting = _turns().placed().checkable().filter(status=TurnState.WAITING, pending_dependencies__gt=0)
    rows = waiting.annotate(awaited=awaited).filter(pending_dependencies__gt=F("awaited"))
    return list(rows.order_by(F("next_check_at").asc(nulls_first=True), "pk").values_list("pk", flat=True)[:limit])


def overdue(*, limit: int) -> list[str]:
    """Unclaimed turns past their deadline."""
    rows = _turns().overdue().order_by(_due_since("deadline_at"), "pk")
    return list(rows.values_list("pk", flat=True)[:limit])


def unwoken() -> TurnQuerySet:
    """Due heads of lanes that no wake-up in force stands for."""
    return _turns().heads().filter(Q(wake_sent_at__isnull=True) | Q(wake_sent_at__lt=StatementTime() - WAKE_LIFETIME))


def unwoken_ids(*, limit: int) -> list[str]:
    rows = unwoken().order_by(_due_since("submitted_at"), "pk")
    return list(rows.values_list("pk", flat=True)[:limit])


def unsent_count() -> int:
    """Wake-ups of this process that could not be sent."""
    return outbox.unsent_count


def has_due() -> bool:
    """Whether a lane's head is due."""
    return _turns().heads().exists()


def seconds_to_next() -> float | None:
    """Until the nearest time that an unfinished turn waits for (back-off, parking, lease); None without one."""
    nearest = (
        _turns()
        .placed()
        .filter(Q(not_before__gt=StatementTime()) | Q(status=TurnState.RUNNING))
        .exclude(submitted_at__isnull=True, status=TurnState.PENDING)
        .annotate(at=_next_time(), now=StatementTime())
        .order_by("at")
        .values_list("at", "now")
        .first()
    )
    return None if nearest is None else max((nearest[0] - nearest[1]).total_seconds(), 0.0)


def _next_time() -> Case:
    return Case(When(status=TurnState.RUNNING, then=F("lease_expires_at")), default=F("not_before"))
