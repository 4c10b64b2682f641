"""An explanation of a turn tells what the turns below it do, however many there are."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.testapp.agents import helper
from tests.testapp.delegating_agents import boss
from turnkit_django.engine import runner
from turnkit_django.models import Conversation, Turn
from turnkit_django.testing import call, drain, text

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _model(turnkit_model: Callable[[Any], object]) -> None:
    turnkit_model(lambda _request: text("done"))


def below(parent: Turn, *, status: str = "pending", agent: str = "helper", **columns: Any) -> Turn:
    """A turn that a call of `parent` has started."""
    ended = {"completed_at": timezone.now()} if status == "completed" else {}
    return Turn.objects.create(
        conversation=Conversation.objects.create(agent_name=agent),
        agent_name=agent,
        model="x",
        max_iterations=1,
        max_output_tokens=1,
        root_id=parent.root_id or parent.pk,
        parent=parent,
        depth=parent.depth + 1,
        status=status,
        lane_position=1,
        submitted_at=timezone.now(),
        **ended | columns,
    )


def told(turn: Turn) -> list[tuple[str, int, str, str]]:
    return [(each.turn, each.depth, each.status, each.reason.value) for each in turn.explain().descendants]


def test_a_turn_that_waits_for_others_says_what_each_of_them_does(turnkit_model: Callable[[Any], object]):
    tasks = [call("launch_agent", {"agent_name": name, "task": "go"}) for name in ("writer", "reader")]
    turnkit_model([tasks, text("done")])
    turn = boss.conversation().submit("please")
    runner.run_next()
    first, second = Turn.objects.exclude(pk=turn.pk).order_by("pk")

    found = turn.explain()

    assert [each.as_dict() for each in found.descendants] == [
        {
            "turn": child.pk,
            "parent": turn.pk,
            "depth": 1,
            "agent": name,
            "status": "pending",
            "reason": child.explain().reason.value,
        }
        for child, name in ((first, "writer"), (second, "reader"))
    ]
    assert found.as_dict()["descendants"] == [each.as_dict() for each in found.descendants]
    assert found.as_dict()["more_descendants"] == 0


def test_the_tree_is_told_depth_first_and_indented():
    root = helper.conversation().submit("please")
    first, second = below(root, agent="writer"), below(root, status="completed")
    inner = below(first, agent="rea\u202eder")
    drawn = [line for line in str(root.explain()).splitlines() if "turn_" in line][1:]

    assert drawn == [
        f"  started     {first.pk} writer: pending (no_wake_up)",
        f"                {inner.pk} rea[U+202E]der: pending (no_wake_up)",
        f"              {second.pk} helper: completed (completed)",
    ]
    assert told(root) == [
        (first.pk, 1, "pending", "no_wake_up"),
        (inner.pk, 2, "pending", "no_wake_up"),
        (second.pk, 1, "completed", "completed"),
    ]
    assert told(first) == [(inner.pk, 1, "pending", "no_wake_up")]
    assert told(inner) == []


def test_each_turn_of_the_tree_has_the_reason_that_it_gives_itself():
    root = helper.conversation().submit("please")
    waiting = below(root, status="waiting", pending_dependencies=1, started_at=timezone.now())
    behind = Turn.objects.create(
        conversation=waiting.conversation,
        agent_name="helper",
        model="x",
        max_iterations=1,
        max_output_tokens=1,
        root=root,
        parent=root,
        lane_position=2,
        submitted_at=timezone.now(),
    )
    aside = below(root, next_check_at=timezone.now() + timezone.timedelta(minutes=1))

    found = {turn: reason for turn, _depth, _status, reason in told(root)}

    assert found == {waiting.pk: "dependencies", behind.pk: "behind_in_lane", aside.pk: "set_aside"}
    assert found == {turn.pk: turn.explain().reason.value for turn in (waiting, behind, aside)}


def test_of_a_large_tree_the_unfinished_turns_are_told_and_the_rest_is_counted():
    root = helper.conversation().submit("please")
    ended = [below(root, status="completed") for _ in range(55)]
    last = below(ended[-1])

    found = root.explain()

    assert len(found.descendants) == 50
    assert (found.descendants[-1].turn, found.descendants[-1].depth) == (last.pk, 2)
    assert (found.more_descendants, found.as_dict()["more_descendants"]) == (6, 6)
    assert "              and 6 more" in str(found).splitlines()


@pytest.mark.parametrize("count", [1, 30])
def test_the_tree_costs_two_statements_however_large_it_is_and_none_without_one(count: int):
    root = helper.conversation().submit("please")
    alone = helper.conversation().submit("please")
    for _ in range(count):
        below(below(root))

    with CaptureQueriesContext(connection) as captured:
        root.explain()
    assert len(captured) == 3
    with CaptureQueriesContext(connection) as captured:
        alone.explain()
    assert len(captured) == 1


def test_a_page_that_shows_the_tree_itself_gets_the_explanation_without_it():
    root = helper.conversation().submit("please")
    child = below(root)

    assert child.pk in str(root.explain())
    assert child.pk not in root.explain().unfolded


def test_a_tree_that_ran_is_told_as_ended(turnkit_model: Callable[[Any], object]):
    turnkit_model(lambda request: text("done") if request.messages[-1]["role"] == "tool" else _first(request))
    turn = boss.conversation().submit("please")
    drain()

    assert [status for _turn, _depth, status, _reason in told(turn)] == ["completed"]


def _first(request: Any) -> Any:
    return call("launch_agent", {"agent_name": "writer", "task": "go"}) if request.model == boss.model else text("done")
