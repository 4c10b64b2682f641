"""A crash at every point inside every transition, made from the list of transitions itself."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.transition_scenarios import CRASHES, SCENARIOS, Ending, Scenario
from turnkit_django.models import Turn
from turnkit_django.store.moves import TRANSITIONS
from turnkit_django.testing import Crash, ScriptedModel, assert_clean, crash_at, drain

pytestmark = pytest.mark.django_db(transaction=True)


def test_each_transition_has_a_scenario_and_each_scenario_a_transition():
    assert {scenario.transition for scenario in SCENARIOS} == set(TRANSITIONS)


@pytest.mark.parametrize(("scenario", "place"), CRASHES, ids=str)
def test_a_crash_leaves_one_honest_end(
    scenario: Scenario,
    place: str,
    turnkit_model: Callable[[Any], ScriptedModel],
    configure: Callable[[dict[str, Any]], None],
):
    world = scenario.world(turnkit_model, configure)

    with pytest.raises(Crash), crash_at(f"{scenario.transition}.{place}"):
        scenario.act(world)
    drain(max_seconds=10)

    expected = scenario.done if place == "committed" else scenario.undone
    assert expected == Ending.found(world.model), list(Turn.objects.values("status", "error"))
    assert_clean(model=world.model)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_without_a_crash_it_ends_as_it_should(
    scenario: Scenario,
    turnkit_model: Callable[[Any], ScriptedModel],
    configure: Callable[[dict[str, Any]], None],
):
    world = scenario.world(turnkit_model, configure)

    scenario.act(world)
    drain(max_seconds=10)

    assert scenario.whole == Ending.found(world.model), list(Turn.objects.values("status", "error"))
    assert_clean(model=world.model)
