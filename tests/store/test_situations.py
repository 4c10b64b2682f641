"""What `explain()` reads, in one statement. `test_query_plans.py` shows that it passes over what has ended."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.testapp.agents import helper
from turnkit_django.engine import runner
from turnkit_django.models import Turn
from turnkit_django.models.querysets import ClockTime
from turnkit_django.store import situations
from turnkit_django.testing import Crash, call, crash_at

pytestmark = pytest.mark.django_db(transaction=True)


def statements(look: Callable[[], object]) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        look()
    return [query["sql"] for query in captured.captured_queries]


def test_one_statement_sees_the_turn_its_calls_and_the_turn_before_it(turnkit_model: Callable[[Any], Any]):
    turnkit_model([call("unsafe", {"n": 1})])
    conversation = helper.conversation()
    first, second = conversation.submit("one"), conversation.submit("two")
    with crash_at("tool_returned"), pytest.raises(Crash):
        runner.run_next()

    assert [len(statements(turn.explain)) for turn in (first, second)] == [1, 1]
    seen = situations.situation(second.pk)
    assert seen.blocker is not None
    assert (seen.turn, seen.running, seen.blocker.turn) == (second, [], first)
    assert [open_tool.name for open_tool in seen.blocker.running] == ["unsafe"]


def test_of_two_turns_in_the_way_the_started_one_is_named():
    conversation = helper.conversation()
    queued, started, mine = (conversation.submit(text) for text in ("one", "two", "three"))
    Turn.objects.filter(pk=started.pk).update(status="waiting", started_at=ClockTime())

    seen = situations.situation(mine.pk)

    assert seen.blocker is not None
    assert seen.blocker.turn == started
    assert situations.situation(queued.pk).blocker is not None
    assert situations.situation(started.pk).blocker is not None


def test_times_fit_those_of_the_columns_without_time_zones_too(settings: Any, turnkit_model: Callable[[Any], Any]):
    turnkit_model([call("unsafe", {"n": 1})])
    turn = helper.conversation().submit("one")
    with crash_at("tool_returned"), pytest.raises(Crash):
        runner.run_next()
    aware = turn.explain()
    settings.TIME_ZONE = "Asia/Kolkata"
    settings.USE_TZ = False

    naive = turn.explain()

    assert naive.since.tzinfo is None
    assert naive.since == turn.tool_executions.get().started_at
    assert naive.as_dict()["since"] == aware.as_dict()["since"]
    assert str(naive).splitlines()[0] == str(aware).splitlines()[0]
