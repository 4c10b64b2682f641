"""Whatever a transition, or a crash inside of it, leaves behind is explained."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.transition_scenarios import CRASHES, SCENARIOS, Scenario
from turnkit_django.core.reasons import MEANINGS
from turnkit_django.models import Turn
from turnkit_django.testing import Crash, ScriptedModel, crash_at, drain

pytestmark = pytest.mark.django_db(transaction=True)


def explain_all() -> list[str]:
    """The statuses of all turns, each explained."""
    for turn in Turn.objects.all():
        found = turn.explain()
        assert found.status == turn.status
        assert turn.status in MEANINGS[found.reason].status
        assert found.action
        assert (found.action.startswith("nothing")) == turn.is_terminal
        assert str(found).startswith(f"{turn.pk} is {turn.status}: {found.reason}\n")
        assert json.loads(json.dumps(found.as_dict())) == found.as_dict()
    return sorted(Turn.objects.values_list("status", flat=True))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_a_turn_is_explained_before_and_after_each_transition(
    scenario: Scenario,
    turnkit_model: Callable[[Any], ScriptedModel],
    configure: Callable[[dict[str, Any]], None],
):
    world = scenario.world(turnkit_model, configure)
    explain_all()
    scenario.act(world)
    explain_all()
    drain(max_seconds=10)

    assert explain_all() == sorted(scenario.whole.turns)


@pytest.mark.parametrize(("scenario", "place"), CRASHES, ids=str)
def test_a_turn_is_explained_after_a_crash_inside_each_transition(
    scenario: Scenario,
    place: str,
    turnkit_model: Callable[[Any], ScriptedModel],
    configure: Callable[[dict[str, Any]], None],
):
    world = scenario.world(turnkit_model, configure)
    with pytest.raises(Crash), crash_at(f"{scenario.transition}.{place}"):
        scenario.act(world)

    explain_all()
