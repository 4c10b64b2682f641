"""`retry()`: a new turn at the end of the lane goes on from what the failed one has."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from tests.events.recording import assert_told_once, heard
from tests.testapp.agents import helper, safe, unsafe
from tests.testapp.models import Effect
from turnkit_django import Agent, register
from turnkit_django.agents import registry
from turnkit_django.engine import reconcile, runner
from turnkit_django.errors import ConfigError, StateError
from turnkit_django.models import Conversation, Message, Turn
from turnkit_django.models.querysets import ClockTime
from turnkit_django.testing import ScriptedModel, assert_clean, call, drain, text

pytestmark = pytest.mark.django_db(transaction=True)

UseModel = Callable[[Any], ScriptedModel]
BAD = {"error": {"status": 400}}


@pytest.fixture
def conversation() -> Conversation:
    return helper.conversation()


def failed(conversation: Conversation, use_model: UseModel, *script: Any, **options: Any) -> Turn:
    use_model([*script, BAD])
    turn = conversation.submit("please", **options)
    assert runner.run_next()
    turn.refresh_from_db()
    assert turn.status == "failed"
    return turn


def contents(model: ScriptedModel) -> list[str]:
    return [message["content"] for message in model.requests[-1].messages]


def test_a_retry_is_a_new_turn_with_the_same_trigger_and_no_new_message(
    conversation: Conversation, turnkit_model: UseModel
):
    first = failed(conversation, turnkit_model)
    before = Message.objects.count()

    second = first.retry()

    assert (second.status, second.retry_of, second.trigger, second.conversation) == (
        "pending",
        first,
        first.trigger,
        conversation,
    )
    assert (second.submitted_at is not None, second.lane_position, second.root_id) == (True, 2, second.pk)
    assert Message.objects.count() == before
    model = turnkit_model([text("done")])
    assert drain() == 1
    assert contents(model) == ["please"]
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.status, second.status, second.output_text) == ("failed", "completed", "done")
    assert_clean()


def test_a_retry_sees_settled_calls_with_their_results_and_does_not_repeat_them(
    conversation: Conversation, turnkit_model: UseModel
):
    first = failed(conversation, turnkit_model, call("unsafe", {"n": 1}))
    assert Effect.objects.count() == 1
    first.retry()
    model = turnkit_model([text("done")])

    assert drain() == 1

    roles = [message["role"] for message in model.requests[-1].messages]
    assert roles == ["user", "assistant", "tool"]
    assert contents(model)[0] == "please"
    assert '"n": 1' in contents(model)[2]
    assert Effect.objects.count() == 1
    assert_clean()


def test_what_happened_meanwhile_stands_before_what_is_tried_again(conversation: Conversation, turnkit_model: UseModel):
    first = failed(conversation, turnkit_model, call("safe", {"n": 1}))
    turnkit_model([text("hello")])
    conversation.submit("something else")
    assert drain() == 1
    conversation.say("by the way")
    first.retry()
    model = turnkit_model([text("done")])

    assert drain() == 1

    assert contents(model)[:3] == ["something else", "hello", "by the way"]
    assert contents(model)[3] == "please"
    assert [message["role"] for message in model.requests[-1].messages[3:]] == ["user", "assistant", "tool"]
    assert contents(model).count("please") == 1
    assert_clean()


def test_a_retry_of_a_retry_holds_the_trigger_once_and_all_calls(conversation: Conversation, turnkit_model: UseModel):
    first = failed(conversation, turnkit_model, call("safe", {"n": 1}))
    second = first.retry()
    turnkit_model([call("safe", {"n": 2}), BAD])
    assert drain() == 1
    third = Turn.objects.get(pk=second.pk).retry()
    model = turnkit_model([text("done")])

    assert drain() == 1

    roles = [message["role"] for message in model.requests[-1].messages]
    assert roles == ["user", "assistant", "tool", "assistant", "tool"]
    assert (third.retry_of, third.trigger) == (second, first.trigger)
    assert_clean()


def test_a_later_turn_sees_the_failed_one_in_its_place_of_the_lane(conversation: Conversation, turnkit_model: UseModel):
    first = failed(conversation, turnkit_model)
    turnkit_model([text("hello")])
    conversation.submit("something else")
    drain()
    first.retry()
    model = turnkit_model([text("done"), text("bye")])
    conversation.submit("and now?")

    assert drain() == 2

    assert contents(model) == ["please", "something else", "hello", "done", "and now?"]
    assert_clean()


def test_a_retry_has_the_options_of_the_failed_turn_and_fresh_counters(
    conversation: Conversation, turnkit_model: UseModel
):
    options = {"model": "openai/gpt-5", "context": {"shop": 7}, "principal": {"user": 3}}
    first = failed(conversation, turnkit_model, call("safe", {"n": 1}), **options)

    second = first.retry()

    same = ("model", "context", "principal", "options", "agent_name", "max_iterations", "hops", "callback_id")
    assert [getattr(second, name) for name in same] == [getattr(first, name) for name in same]
    assert second.context == {"shop": 7}
    assert (second.iterations, second.attempts, second.model_failures, second.usage.total_tokens) == (0, 0, 0, 0)
    assert (second.error, second.submission_key, second.pending_dependencies) == (None, None, 0)


def test_a_retry_takes_the_agent_as_it_is_defined_now(turnkit_model: UseModel, monkeypatch: pytest.MonkeyPatch):
    old = register(Agent(name="changing", model="openai/gpt-5-mini", tools=[safe]))
    first = failed(old.conversation(), turnkit_model)
    monkeypatch.delitem(registry._agents, "changing")
    new = register(
        Agent(name="changing", model="openai/gpt-5-mini", tools=[safe, unsafe], max_iterations=3, version="2")
    )

    second = first.retry()

    assert (second.agent_version, second.agent_fingerprint, second.max_iterations) == ("2", new.fingerprint, 3)
    monkeypatch.delitem(registry._agents, "changing")
    with pytest.raises(ConfigError, match="changing"):
        first.retry()


def test_a_turn_that_failed_past_its_deadline_gets_its_whole_time_again(turnkit_model: UseModel):
    slow = register(Agent(name="slow", model="openai/gpt-5-mini", timeout=timedelta(hours=1)))
    first = slow.conversation().submit("please")
    Turn.objects.filter(pk=first.pk).update(deadline_at=ClockTime())
    assert reconcile.run_pass(batch=10).overdue == 1

    second = first.retry()

    assert second.deadline_at - second.submitted_at == timedelta(hours=1)
    turnkit_model([text("done")])
    assert drain() == 1
    assert_clean()


def test_an_inline_turn_that_failed_is_tried_again_by_a_worker(conversation: Conversation, turnkit_model: UseModel):
    turnkit_model([call("safe", {"n": 1}), BAD])
    first = conversation.ask("please")
    assert first.status == "failed"

    assert first.retry().is_background

    model = turnkit_model([text("done")])
    assert drain() == 1
    assert contents(model)[0] == "please"
    assert [message["role"] for message in model.requests[-1].messages] == ["user", "assistant", "tool"]
    assert_clean()


def test_a_failed_turn_without_a_message_of_its_own_is_tried_again(conversation: Conversation, turnkit_model: UseModel):
    conversation.say("hello?")
    turnkit_model([BAD])
    first = conversation.run()

    second = first.retry()

    assert second.trigger is None
    model = turnkit_model([text("done")])
    assert drain() == 1
    assert contents(model) == ["hello?"]
    assert_clean()


@pytest.mark.parametrize("status", ["pending", "completed", "cancelled", "stale", "waiting"])
def test_only_a_failed_turn_is_tried_again(status: str, conversation: Conversation):
    turn = conversation.submit("please")
    ends = {"completed", "cancelled", "stale"}
    Turn.objects.filter(pk=turn.pk).update(status=status, completed_at=ClockTime() if status in ends else None)

    with pytest.raises(StateError, match=f"{turn.pk} is {status}; only a failed turn can be tried again"):
        turn.retry()
    assert Turn.objects.count() == 1


def test_an_unfinished_retry_is_returned_instead_of_a_second_one(conversation: Conversation, turnkit_model: UseModel):
    first = failed(conversation, turnkit_model)

    second = first.retry()

    assert first.retry() == second
    assert Turn.objects.count() == 2


def test_a_retry_that_has_completed_is_named(conversation: Conversation, turnkit_model: UseModel):
    first = failed(conversation, turnkit_model)
    second = first.retry()
    turnkit_model([text("done")])
    drain()

    with pytest.raises(StateError, match=f"{first.pk} was tried again already: {second.pk} has completed"):
        first.retry()


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_a_retry_that_came_to_nothing_stands_in_no_way(end: str, conversation: Conversation, turnkit_model: UseModel):
    first = failed(conversation, turnkit_model)
    second = first.retry()
    turnkit_model([BAD])
    second.cancel() if end == "cancelled" else drain()

    third = first.retry()

    assert (third.retry_of, third.status) == (first, "pending")
    assert Turn.objects.get(pk=second.pk).status == end


def test_a_retry_of_a_failed_retry_counts_for_the_first_turn_too(conversation: Conversation, turnkit_model: UseModel):
    first = failed(conversation, turnkit_model)
    second = first.retry()
    turnkit_model([BAD])
    drain()
    third = Turn.objects.get(pk=second.pk).retry()

    assert first.retry() == third


def test_a_turn_of_a_sub_agent_is_not_tried_again(conversation: Conversation, turnkit_model: UseModel):
    turn = failed(conversation, turnkit_model)
    Turn.objects.filter(pk=turn.pk).update(depth=1)

    with pytest.raises(StateError, match=f"{turn.pk} was started by a call of another turn"):
        turn.retry()


def test_a_retry_goes_with_the_transaction_that_asked_for_it(conversation: Conversation, turnkit_model: UseModel):
    first = failed(conversation, turnkit_model)

    with transaction.atomic():
        first.retry()
        transaction.set_rollback(True)

    assert Turn.objects.count() == 1


def test_a_retry_can_be_waited_for_and_be_told_to_wait(conversation: Conversation, turnkit_model: UseModel):
    first = failed(conversation, turnkit_model)
    target, last = helper.conversation().submit("one"), helper.conversation().submit("two")

    second = first.retry().wait_for(target)
    last.wait_for(second)

    model = turnkit_model(lambda request: text("done"))
    assert drain() == 3
    assert "wait_results" in str(model.requests[1].messages)
    assert model.requests[1].messages[0]["content"] == "please"
    assert_clean()


def test_a_retry_is_told_and_explained(conversation: Conversation, turnkit_model: UseModel):
    with heard() as events:
        first = failed(conversation, turnkit_model)
        second = first.retry()
        turnkit_model([text("done")])
        drain()

    assert_told_once(events)
    assert f"retry of    {first.pk}" in str(second.explain())
    assert "retry()" in first.explain().action
