"""A turn with what stands around it, as one statement saw it: what `explain()` looks at."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Case, F, OuterRef, Q, Subquery, Value, When
from django.db.models.functions import JSONObject

from turnkit_django.core.explanation import Awaited
from turnkit_django.core.states import OPEN, Approval, ToolState
from turnkit_django.models import Conversation, ToolExecution, Turn, Wait
from turnkit_django.models.querysets import ClockTime, TurnQuerySet
from turnkit_django.store import connections

_MOST = 20  # of what a turn waits for; the rest would tell nobody more


@dataclass(frozen=True, slots=True)
class OpenTool:
    """A call that runs.

    Attributes:
        name: As the model wrote it.
    """

    execution_id: str
    name: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Situation:
    """A turn's row, and what it depends on.

    Attributes:
        now: The database's time, no earlier than any that the rows hold of the past.
        running: Its calls that are started and not settled.
        missing: Unfinished turns that it waits for, and its calls that wait for a person's approval.
        blocker: The turn of its lane that has to end first.
    """

    turn: Turn
    now: datetime
    running: list[OpenTool] = field(default_factory=list)
    missing: list[Awaited] = field(default_factory=list)
    blocker: Situation | None = None


def _turns() -> TurnQuerySet:
    return Turn.objects.using(connections.alias()).defer(
        "context", "principal", "options", "output_text", "callback_error"
    )


def situation(turn_id: str) -> Situation:
    """What stands now, in one statement.

    Raises:
        Turn.DoesNotExist: Names the id.
    """
    rows = (
        _turns()
        .filter(Q(pk=turn_id) | Q(pk=Subquery(_before(turn_id).values("pk")[:1])))
        .annotate(seen_at=ClockTime(), running=_running(), approvals=_approvals(), targets=_targets())
    )
    seen = {row.pk: _seen(row) for row in rows}
    if turn_id not in seen:
        raise Turn.DoesNotExist(f"there is no turn {turn_id!r:.80}: it was never stored, or it was erased")
    mine = seen.pop(turn_id)
    return replace(mine, blocker=next(iter(seen.values()), None))


def _seen(row: Turn) -> Situation:
    noted = vars(row)
    now: datetime = noted["seen_at"]
    return Situation(
        turn=row,
        now=now,
        running=[OpenTool(each["id"], each["name"], _time(each["since"], like=now)) for each in noted["running"]],
        missing=[
            Awaited(each["kind"], each["id"], _time(each["since"], like=now))
            for each in [*noted["targets"], *noted["approvals"]]
        ],
    )


def in_question(conversation_id: str) -> list[tuple[str, str]]:
    """Ids and statuses of the conversation's unfinished turns in the order of the lane, or of the last one.

    Raises:
        Conversation.DoesNotExist: Names the id.
    """
    if not Conversation.objects.using(connections.alias()).filter(pk=conversation_id).exists():
        raise Conversation.DoesNotExist(f"there is no conversation {conversation_id!r:.80}")
    of_lane = _turns().filter(conversation=conversation_id)
    place = F("lane_position")
    unfinished = of_lane.unfinished().order_by(place.asc(nulls_last=True), "pk")[:_MOST]
    last = of_lane.order_by(place.desc(nulls_last=True), "-pk")[:1]
    return [(turn.pk, turn.status) for turn in list(unfinished) or last]


def _before(turn_id: str) -> TurnQuerySet:
    """What keeps the turn's lane: the words of `TurnQuerySet.heads`, with what is started first."""
    me = _turns().filter(pk=turn_id)
    is_started = Q(started_at__isnull=False)
    return (
        _turns()
        .placed()
        .filter(
            Q(lane_position__lt=Subquery(me.values("lane_position")[:1])) | is_started,
            conversation=Subquery(me.values("conversation")[:1]),
        )
        .exclude(pk=turn_id)
        .order_by(Case(When(is_started, then=Value(0)), default=Value(1)), "lane_position", "pk")
    )


def _running() -> ArraySubquery:
    calls = ToolExecution.objects.filter(turn=OuterRef("pk"), status=ToolState.RUNNING.value).order_by("ordinal")
    return ArraySubquery(calls.values(json=JSONObject(id="pk", name="tool_name", since="started_at"))[:_MOST])


def _approvals() -> ArraySubquery:
    calls = ToolExecution.objects.filter(
        turn=OuterRef("pk"), status=ToolState.PENDING.value, approval=Approval.REQUIRED.value
    )
    asked = JSONObject(kind=Value("approval"), id="pk", since="created_at")
    return ArraySubquery(calls.order_by("ordinal").values(json=asked)[:_MOST])


def _targets() -> ArraySubquery:
    waits = Wait.objects.filter(turn=OuterRef("pk"), target__status__in=OPEN).order_by("ordinal", "pk")
    edge = JSONObject(kind=Value("turn"), id="target_id", since="created_at")
    return ArraySubquery(waits.values(json=edge)[:_MOST])


def _time(text: str, *, like: datetime) -> datetime:
    """A time out of JSON, as Django reads those of columns: with or without a zone."""
    return datetime.fromisoformat(text).astimezone(like.tzinfo).replace(tzinfo=like.tzinfo)
