"""The connection dies during COMMIT: nothing twice, nothing lost, and no healthy worker is told that it lost its claim.

Each transition is tried both ways: the server commits and its answer is lost, or the message never reaches it. Either
way the same process repeats or recognises its own work, so that everything ends as if nothing had happened.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.db.models import Count

from tests.events.recording import assert_told_once, heard, types
from tests.faults.transition_scenarios import SCENARIOS, Ending, Scenario
from tests.store.wire import Cut, Wire, at_commit_of, open_wire
from turnkit_django import failpoints
from turnkit_django.models import Conversation, Message, Turn
from turnkit_django.store.moves import STATEMENTS, TRANSITIONS
from turnkit_django.testing import ScriptedModel, assert_clean, drain

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def wire(transactional_db: None) -> Iterator[Wire]:
    with open_wire() as wire:
        try:
            yield wire
        finally:
            failpoints.arm(None)


def places() -> list[int]:
    return list(Turn.objects.filter(lane_position__isnull=False).values_list("lane_position", flat=True))


MOVES = {
    "park": ["turn.parked", "model.failed"],
    "ready": ["turn.ready"],
    "recover": ["turn.recovered", "model.failed"],
    "release": ["turn.released", "model.failed"],
    "claim_due": ["turn.started"],
    "claim_inline": ["turn.started"],
    "start_inline": ["turn.started"],
    "set_deliveries_aside": ["delivery.set_aside"],
    "start_tool": ["tool_call.started"],
    "settle_tool": ["tool_call.started"],
    "fail": ["model.failed"],
}
"""What rows do not tell any more when all has ended: each once."""


def is_commit(sql: str) -> bool:
    return sql == "COMMIT"


def is_hot_statement(sql: str) -> bool:
    return "UPDATE turnkit_turn t SET" in sql and "SKIP LOCKED" not in sql


def test_every_commit_of_the_store_is_tried():
    assert {scenario.transition for scenario in SCENARIOS} == set(TRANSITIONS)


@pytest.mark.parametrize(
    "deaths", [("unheard",), ("unsent",), ("unheard", "unsent"), ("unsent", "unheard")], ids="-then-".join
)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_a_connection_that_dies_in_the_commit_changes_nothing_of_the_end(
    scenario: Scenario,
    deaths: tuple[Cut, ...],
    wire: Wire,
    turnkit_model: Callable[[Any], ScriptedModel],
    configure: Callable[[dict[str, Any]], None],
    caplog: pytest.LogCaptureFixture,
):
    statement = STATEMENTS.get(scenario.transition)
    commits = is_hot_statement if statement else is_commit
    cut = partial(wire.cut_next, *deaths, at=commits)
    with heard() as events:
        world = scenario.world(turnkit_model, configure)
        failpoints.arm(at_commit_of(scenario.transition, is_statement=bool(statement), do=cut))

        scenario.act(world)
        drain(max_seconds=10)

    assert len(deaths) == len(wire.cuts)
    assert commits(wire.cuts[0])
    assert scenario.whole == Ending.found(world.model), list(Turn.objects.values("status", "error"))
    assert [record.message for record in caplog.records if getattr(record, "event", "") == "claim.lost"] == []
    dead_workers = 1 if scenario.transition in {"recover", "release"} else 0
    assert [dead_workers] * len(scenario.whole.turns) == list(Turn.objects.values_list("attempts", flat=True))
    assert_clean(model=world.model)
    assert_told_once(events)
    assert [types(events).count(name) for name in MOVES.get(scenario.transition, ())] in ([], [1], [1, 1])


@pytest.mark.parametrize("how", ["unheard", "unsent"])
def test_a_submission_takes_one_place_of_the_lane_and_the_next_one_the_next(
    how: Cut, wire: Wire, turnkit_model: Callable[[Any], ScriptedModel]
):
    from tests.testapp.agents import helper

    model = turnkit_model([])
    conversation = helper.conversation()
    failpoints.arm(at_commit_of("start", is_statement=False, do=lambda: wire.cut_next(how)))

    conversation.submit("one")
    conversation.submit("two")

    assert sorted(places()) == [1, 2]
    assert list(Conversation.objects.values_list("next_lane_position", flat=True)) == [3]
    assert drain() == 2
    assert {"completed"} == {turn.status for turn in Turn.objects.all()}
    assert list(Message.objects.values("conversation", "sequence").annotate(n=Count("pk")).filter(n__gt=1)) == []
    assert_clean(model=model)
