"""`drain`: everything that is due, in this process."""

import pytest
from django.test import override_settings

from tests.testapp.agents import helper
from turnkit_django.models import Turn
from turnkit_django.testing import Crash, assert_clean, call, crash_at, drain, text

pytestmark = pytest.mark.django_db


def test_nothing_due_is_nothing_run():
    assert drain() == 0


def test_turns_of_a_conversation_run_in_the_order_of_their_submission(turnkit_model):
    model = turnkit_model(lambda request: text(f"to {request.last_text}"))
    conversation = helper.conversation()
    turns = [conversation.submit(str(n)) for n in range(4)]
    assert drain() == 4
    rows = Turn.objects.in_bulk([turn.pk for turn in turns])
    assert [rows[turn.pk].output_text for turn in turns] == ["to 0", "to 1", "to 2", "to 3"]
    assert list(Turn.objects.order_by("completed_at")) == turns
    assert_clean(model=model)


def test_previews_are_left_alone(turnkit_model):
    model = turnkit_model([])
    turn = helper.conversation().prepare("later")
    assert drain() == 0
    turn.refresh_from_db()
    assert (turn.status, len(model.requests)) == ("pending", 0)


@override_settings(RQ_QUEUES={"turnkit": {"URL": "redis://127.0.0.1:1/0"}})
def test_it_needs_no_redis(turnkit_model):
    turnkit_model([text("hi")])
    helper.conversation().submit("please")
    assert drain() == 1


@pytest.mark.parametrize("retry_after", [0, 0.3])
def test_work_that_becomes_due_soon_is_waited_for(turnkit_model, retry_after: float):
    model = turnkit_model([{"error": {"status": 429, "retry_after": retry_after}}, text("hi")])
    turn = helper.conversation().submit("please")
    assert drain(max_seconds=20) == 2
    turn.refresh_from_db()
    assert turn.output_text == "hi"
    assert_clean(model=model)


def test_work_that_becomes_due_later_is_not_waited_for(turnkit_model):
    turnkit_model([{"error": {"status": 429, "retry_after": 600}}])
    turn = helper.conversation().submit("please")
    assert drain(max_seconds=1) == 1
    turn.refresh_from_db()
    assert turn.status == "waiting"


def test_what_a_simulated_crash_left_is_taken_over_at_once(turnkit_model):
    model = turnkit_model([call("safe"), text("hi")])
    turn = helper.conversation().submit("please")
    with crash_at("tool_returned"), pytest.raises(Crash):
        drain()
    assert drain(max_seconds=5) == 1
    turn.refresh_from_db()
    assert (turn.status, turn.attempts) == ("completed", 1)
    assert_clean(model=model)


def test_a_worker_of_another_process_is_not_robbed(turnkit_model):
    turnkit_model([text("hi")])
    turn = helper.conversation().submit("please")
    with crash_at("claimed"), pytest.raises(Crash):
        drain()
    Turn.objects.update(claimed_by="elsewhere:1:1")
    assert drain(max_seconds=0) == 0
    turn.refresh_from_db()
    assert turn.status == "running"


def test_a_drain_inside_a_tool_does_not_rob_its_own_turn(turnkit_model):
    from turnkit_django import Agent, register, tool
    from turnkit_django.agents import registry

    @tool
    def nested() -> int:
        """Drain."""
        return drain(max_seconds=0)

    before = dict(registry._agents)
    try:
        agent = register(Agent(name="nesting", model="openai/gpt-5-mini", tools=[nested]))
        model = turnkit_model([call("nested"), text("hi")])
        turn = agent.conversation().ask("please")
        assert turn.tool_executions.get().result == {"result": 0}
        assert_clean(model=model)
    finally:
        registry._agents = before
