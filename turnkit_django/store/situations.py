"""A turn with what stands around it, as one statement saw it: what `explain()` looks at."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import itemgetter
from typing import Any

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Case, Exists, F, OuterRef, Q, Subquery, Value, When
from django.db.models.functions import JSONObject

from turnkit_django.core.explanation import Awaited
from turnkit_django.core.states import OPEN, Approval, ToolState
from turnkit_django.models import Conversation, ToolExecution, Turn, Wait
from turnkit_django.models.querysets import ClockTime, TurnQuerySet
from turnkit_django.store import connections, sql

_MOST = 20  # of what a turn waits for; the rest would tell nobody more
_MOST_DESCENDANTS = 50
_IS_STARTED = Q(started_at__isnull=False)


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
        is_behind: Whether there is one that was not looked at.
        has_descendants: Whether calls of it have started turns.
    """

    turn: Turn
    now: datetime
    running: list[OpenTool] = field(default_factory=list)
    missing: list[Awaited] = field(default_factory=list)
    blocker: Situation | None = None
    is_behind: bool = False
    has_descendants: bool = False


def _turns() -> TurnQuerySet:
    return Turn.objects.using(connections.alias()).defer(
        "context", "principal", "options", "candidate", "output_text", "callback_error"
    )


def situation(turn_id: str) -> Situation:
    """What stands now, in one statement.

    Raises:
        Turn.DoesNotExist: Names the id.
    """
    rows = (
        _turns()
        .filter(Q(pk=turn_id) | Q(pk=Subquery(_before(turn_id).values("pk")[:1])))
        .annotate(
            seen_at=ClockTime(),
            running=_running(),
            approvals=_approvals(),
            targets=_targets(),
            has_descendants=Exists(_turns().filter(parent=OuterRef("pk"))),
        )
    )
    seen = {row.pk: _seen(row) for row in rows}
    if turn_id not in seen:
        raise Turn.DoesNotExist(f"there is no turn {turn_id!r:.80}: it was never stored, or it was erased")
    mine = seen.pop(turn_id)
    return replace(mine, blocker=next(iter(seen.values()), None))


def descendants(turn_id: str) -> tuple[list[tuple[int, Situation]], int]:
    """The turns below one with how deep they stand, depth first, and how many more there are: what tells their reason.

    Of many, the unfinished ones come before the others.
    """
    values = {"turn_id": turn_id, "limit": _MOST_DESCENDANTS}
    found = [vars(row) for row in Turn.objects.using(connections.alias()).raw(sql.DESCENDANTS, values)]
    behind = Exists(_in_the_way(OuterRef("pk"), OuterRef("conversation"), OuterRef("lane_position")))
    rows = _turns().filter(pk__in=[row["id"] for row in found])
    rows = rows.annotate(seen_at=ClockTime(), running=_running(), is_behind=behind)
    seen = {row.pk: _seen(row) for row in rows}
    shown = [(row["level"], seen[row["id"]]) for row in sorted(found, key=itemgetter("path")) if row["id"] in seen]
    return shown, (found[0]["total"] if found else 0) - len(found)


def _seen(row: Turn) -> Situation:
    noted = vars(row)
    now: datetime = noted["seen_at"]
    return Situation(
        turn=row,
        now=now,
        running=[OpenTool(each["id"], each["name"], _time(each["since"], like=now)) for each in noted["running"]],
        missing=[
            Awaited(each["kind"], each["id"], _time(each["since"], like=now))
            for each in [*noted.get("targets", ()), *noted.get("approvals", ())]
        ],
        is_behind=noted.get("is_behind", False),
        has_descendants=noted.get("has_descendants", False),
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
    """What keeps the turn's lane, with what is started first."""
    me = _turns().filter(pk=turn_id)
    conversation, place = Subquery(me.values("conversation")[:1]), Subquery(me.values("lane_position")[:1])
    started_first = Case(When(_IS_STARTED, then=Value(0)), default=Value(1))
    return _in_the_way(turn_id, conversation, place).order_by(started_first, "lane_position", "pk")


def _in_the_way(turn_id: Any, conversation: Any, place: Any) -> TurnQuerySet:
    """The words of `TurnQuerySet.heads`."""
    lane = _turns().placed().filter(Q(lane_position__lt=place) | _IS_STARTED, conversation=conversation)
    return lane.exclude(pk=turn_id)


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
