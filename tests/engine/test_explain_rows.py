"""Rows as nobody's verb writes them: whatever the constraints allow is explained, and as the scans would take it."""

import itertools
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from turnkit_django.core.explanation import Explanation
from turnkit_django.core.reasons import MEANINGS, Reason
from turnkit_django.core.states import TERMINAL, TurnState
from turnkit_django.engine.explain import explained
from turnkit_django.models import Conversation, Turn
from turnkit_django.store import reads
from turnkit_django.store.situations import OpenTool, Situation

pytestmark = pytest.mark.django_db

NOW = timezone.now()
HOUR = timedelta(hours=1)
TIMES = (None, NOW - HOUR, NOW + HOUR)
LANES = ("free", "queued", "started")
ERRORS: tuple[Any, ...] = (
    None,
    {"type": "WorkerDied", "message": "died", "details": {"attempts": 2}},
    {"type": "ConfigError", "message": "expected the name of a registered agent, got 'x'", "details": {"attempts": 1}},
    {"type": "RuntimeError", "message": "no disk", "details": {"attempts": 1}},
    {"type": "RuntimeError", "message": "no disk", "details": {"attempts": "many"}},
    {"type": "BudgetError", "message": "turn timed out", "details": {}},
    {"type": "BudgetError", "message": "maximum iterations reached (1)", "details": {}},
    {"type": "BudgetError", "message": "some other limit"},
    {"type": "UnfinishedAnswer"},
    {"type": "TransientModelError", "message": "busy", "details": None},
    {"type": "PermanentModelError", "message": "no", "details": {"status_code": 400}},
    {"type": "ModelAccessError", "message": "no key"},
    {"type": "Refused", "message": "no"},
    {"type": "WorkerStopped", "message": "stop"},
    {"type": "Cancelled", "message": "cancelled"},
    {"type": ["not", "a", "text"], "message": {"not": "a text"}, "details": [1]},
    {},
    [],
    ["a list"],
    "a text\n\x1b[31m",
    7,
    False,
)


def row(status: str, **values: Any) -> Turn:
    """A turn with what the constraints ask of its status."""
    if status in TERMINAL:
        values["completed_at"] = NOW
    if status == TurnState.RUNNING:
        lease = values.pop("lease", NOW + HOUR)
        values |= {"claim_token": "t" * 32, "claimed_by": "host:1:1", "claimed_at": NOW, "lease_expires_at": lease}
    if values.get("submitted_at") is not None:
        values["lane_position"] = 5
    needed = {"agent_name": "helper", "model": "x", "max_iterations": 1, "max_output_tokens": 1}
    return Turn(status=status, **needed | values)


def product(**choices: Any) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


def stored(turns: list[Turn], lanes: list[str]) -> None:
    """Insert them, each into a lane of its own, with what stands there before."""
    conversations = [Conversation(agent_name="helper") for _ in turns]
    Conversation.objects.bulk_create(conversations)
    others = {
        "queued": {"status": "pending", "lane_position": 1, "submitted_at": NOW},
        "started": {"status": "waiting", "lane_position": 9, "submitted_at": NOW, "started_at": NOW},
    }
    before = []
    for turn, conversation, lane in zip(turns, conversations, lanes, strict=True):
        turn.conversation = conversation
        if lane != "free":
            needed = {"agent_name": "helper", "model": "x", "max_iterations": 1, "max_output_tokens": 1}
            before.append(Turn(conversation=conversation, **needed | others[lane]))
    Turn.objects.bulk_create([*turns, *before])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE turnkit_turn, turnkit_conversation")


def honest(found: Explanation, turn: Turn) -> None:
    assert found.status == turn.status
    assert turn.status in MEANINGS[found.reason].status
    assert found.summary
    assert found.action
    assert found.turn in str(found)
    assert "\x1b" not in str(found)
    assert found.since <= found.now
    assert json.loads(json.dumps(found.as_dict())) == found.as_dict()


def agree(turns: list[Turn]) -> dict[str, Reason]:
    """The reason of each, and that it is the one by which claims and maintenance go."""
    found = {turn.pk: turn.explain() for turn in turns}
    for turn in turns:
        honest(found[turn.pk], turn)
    reasons = {pk: each.reason for pk, each in found.items()}
    many = len(turns) * 2
    overdue = set(reads.overdue(limit=many)) & set(reasons)
    due = set(Turn.objects.heads().values_list("pk", flat=True)) & set(reasons)
    unwoken = set(reads.unwoken().values_list("pk", flat=True)) & set(reasons)
    expired = {pk for pk, _token, _attempts in reads.expired(limit=many)}
    ready = set(reads.ready(limit=many)) & set(reasons)

    def said(*codes: Reason) -> set[str]:
        return {pk for pk, reason in reasons.items() if reason in codes}

    assert said(Reason.OVERDUE) == overdue
    assert said(Reason.WAKE_UP_SENT, Reason.WAKE_UP_LOST, Reason.NO_WAKE_UP) == due - overdue
    assert said(Reason.WAKE_UP_LOST, Reason.NO_WAKE_UP) == unwoken - overdue
    assert said(Reason.LEASE_EXPIRED, Reason.INLINE_LEASE_EXPIRED) == expired
    assert said(Reason.TIME_HAS_COME) == ready - overdue
    return reasons


def test_every_pending_row_is_explained_as_the_scans_take_it():
    submitted = product(
        submitted_at=(NOW - HOUR,), started_at=(None, NOW - HOUR), not_before=TIMES, next_check_at=TIMES[1:],
        deadline_at=TIMES[1:], lane=LANES, wake_sent_at=TIMES[:2], pending_dependencies=(0, 1),
    )  # fmt: skip
    previews = product(
        lane_position=(None, 5), started_at=(None, NOW - HOUR), next_check_at=TIMES[1:], deadline_at=TIMES, lane=LANES
    )
    combinations = [*submitted, *previews]
    lanes = [values.pop("lane") for values in combinations]
    turns = [row("pending", **values, phase="tools") for values in combinations]
    stored(turns, lanes)

    reasons = agree(turns)

    assert set(reasons.values()) == {
        Reason.NOT_SUBMITTED, Reason.OVERDUE, Reason.SET_ASIDE, Reason.BEHIND_IN_LANE, Reason.DEPENDENCIES,
        Reason.BACKED_OFF, Reason.WAKE_UP_LOST, Reason.NO_WAKE_UP,
    }  # fmt: skip
    behind = {turn.pk for turn, lane in zip(turns, lanes, strict=True) if lane != "free" and turn.submitted_at}
    assert {pk for pk, reason in reasons.items() if reason is Reason.BEHIND_IN_LANE} <= behind


@pytest.mark.parametrize("status", ["waiting", "paused"])
def test_every_waiting_or_paused_row_is_explained_as_the_scans_take_it(status: str):
    combinations = list(
        product(
            submitted_at=(None, NOW - HOUR), lane_position=(None, 5), not_before=TIMES, next_check_at=TIMES[1:],
            deadline_at=TIMES[:2], pending_dependencies=(0, 1), phase=("model", "output"),
        )
    )  # fmt: skip
    turns = [row(status, **values) for values in combinations]
    stored(turns, list(itertools.islice(itertools.cycle(["free", "queued"]), len(turns))))

    reasons = agree(turns)

    expected = {Reason.OVERDUE, Reason.SET_ASIDE}
    expected |= (
        {Reason.PAUSED}
        if status == "paused"
        else {Reason.NO_PLACE_IN_LANE, Reason.DEPENDENCIES, Reason.PARKED, Reason.TIME_HAS_COME}
    )
    assert set(reasons.values()) == expected


def test_every_running_row_is_explained_as_the_scans_take_it():
    combinations = list(
        product(
            submitted_at=(None, NOW - HOUR), lane_position=(None, 5), lease=TIMES[1:], next_check_at=TIMES[1:],
            deadline_at=TIMES, phase=("model", "tools", "output"), attempt=(None, "a" * 32),
        )
    )  # fmt: skip
    turns = []
    for values in combinations:
        attempt = values.pop("attempt")
        turns.append(row("running", **values, attempt_id=attempt, attempt_started_at=attempt and NOW))
    stored(turns, ["free"] * len(turns))

    assert set(agree(turns).values()) == {
        Reason.RUNNING_INLINE, Reason.CALLING_MODEL, Reason.BETWEEN_STEPS, Reason.OVERDUE_IN_STEP,
        Reason.LEASE_EXPIRED, Reason.INLINE_LEASE_EXPIRED, Reason.SET_ASIDE,
    }  # fmt: skip


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_every_ended_row_is_explained_whatever_stands_in_its_error(status: str):
    combinations = list(product(submitted_at=(None, NOW - HOUR), error=ERRORS, deadline_at=TIMES[:2]))
    turns = [row(status, **values) for values in combinations]
    stored(turns, ["free"] * len(turns))

    reasons = set(agree(turns).values())

    if status == "failed":
        assert reasons == {reason for reason in Reason if reason.startswith("failed")}
    else:
        assert reasons == {Reason(status)}


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_backed_off_row_is_explained_whatever_stands_in_its_error(error: Any):
    turn = row("pending", submitted_at=NOW - HOUR, not_before=NOW + HOUR, error=error)
    stored([turn], ["free"])

    (reason,) = agree([turn]).values()

    assert reason in {Reason.WORKER_DIED, Reason.AGENT_NOT_REGISTERED, Reason.BACKED_OFF}


@pytest.mark.parametrize("status", sorted(TurnState))
def test_no_combination_at_all_is_without_a_reason(status: str):
    """The same without the database: many more of them."""
    errors = itertools.cycle(ERRORS)
    tools = ([], [OpenTool("tool_1", "\x1b[31mrm\u202e", NOW)])
    blockers = [None, row("pending"), row("running", lease=NOW - HOUR), row("waiting", not_before=NOW + HOUR)]
    for values in product(
        submitted_at=(None, NOW - HOUR), started_at=(None, NOW), not_before=TIMES, next_check_at=TIMES,
        deadline_at=TIMES, pending_dependencies=(0, 2), running=tools, blocker=blockers,
    ):  # fmt: skip
        values["error"] = next(errors)
        running, other = values.pop("running"), values.pop("blocker")
        turn = made(row(status, **values))
        blocker = Situation(made(other), NOW) if other else None
        honest(explained(Situation(turn, NOW, running, [], blocker)), turn)


def made(turn: Turn) -> Turn:
    """As read: the database has set its time."""
    created: datetime = NOW - HOUR
    turn.created_at = created
    return turn
