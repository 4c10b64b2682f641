"""`wait_for` from end to end: what the waiting turn is told, and what `explain()` says of it."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.events.recording import assert_told_once, heard, types
from tests.testapp.agents import helper
from turnkit_django.core.reasons import Reason
from turnkit_django.engine import runner
from turnkit_django.models import Turn, Wait
from turnkit_django.testing import Crash, ScriptedModel, assert_clean, call, crash_at, drain, text

pytestmark = pytest.mark.django_db(transaction=True)

UseModel = Callable[[Any], ScriptedModel]


def answers(request: Any) -> Any:
    """Answers each question with itself, but fails with `bad` ones."""
    last = request.messages[-1]["content"]
    if last == "bad":
        return {"error": {"status": 400}}
    return text("joined" if "wait_results" in last else f"answer to {last}")


def told(model: ScriptedModel) -> list[dict[str, Any]]:
    """The results that the last request holds."""
    found: list[dict[str, Any]] = json.loads(model.requests[-1].messages[-1]["content"])["wait_results"]
    return found


def test_the_first_request_of_a_turn_that_waited_holds_the_results_in_the_order_of_asking(turnkit_model: UseModel):
    model = turnkit_model(answers)
    targets = [helper.conversation().submit(task) for task in ("one", "bad", "three")]
    targets[2].cancel()
    waiter = helper.conversation().prepare("sum up")
    waiter.wait_for(targets[2], targets[0])
    waiter.wait_for(targets[1])
    waiter.submit()

    assert drain() == 3

    waiter.refresh_from_db()
    assert (waiter.status, waiter.output_text) == ("completed", "joined")
    assert [each["turn_id"] for each in told(model)] == [targets[index].pk for index in (2, 0, 1)]
    assert [each["status"] for each in told(model)] == ["cancelled", "completed", "failed"]
    assert told(model)[1] == {
        "conversation_id": targets[0].conversation_id,
        "turn_id": targets[0].pk,
        "status": "completed",
        "result": "answer to one",
    }
    assert told(model)[2]["error"]["type"] == "PermanentModelError"
    assert [message["role"] for message in model.requests[-1].messages[-2:]] == ["user", "user"]
    assert model.requests[-1].messages[-2]["content"] == "sum up"
    assert_clean(model=model)


def test_the_results_are_one_message_of_the_turn_and_stay_in_its_place_for_later_turns(turnkit_model: UseModel):
    model = turnkit_model(answers)
    conversation, target = helper.conversation(), helper.conversation().submit("one")
    waiter = conversation.submit("sum up").wait_for(target)
    later = conversation.submit("and now?")

    assert drain() == 3

    kinds = waiter.messages.order_by("sequence").values_list("role", "kind")
    assert list(kinds) == [("user", "text"), ("user", "text"), ("assistant", "text")]
    said = [message["content"] for message in model.requests[-1].messages]
    assert [each if "wait_results" not in each else "results" for each in said] == [
        "sum up",
        "results",
        "joined",
        "and now?",
    ]
    assert Turn.objects.get(pk=later.pk).output_text == "answer to and now?"
    assert_clean(model=model)


def test_the_results_are_told_once_however_often_its_worker_dies(turnkit_model: UseModel):
    model = turnkit_model(answers)
    waiter, target = helper.conversation().submit("sum up"), helper.conversation().submit("one")
    waiter.wait_for(target)
    assert runner.run_next()
    with pytest.raises(Crash), crash_at("claimed"):
        runner.run_next()

    assert drain() == 1

    assert waiter.messages.filter(role="user").count() == 2
    assert len(told(model)) == 1
    assert_clean(model=model)


def test_results_of_a_turn_that_asks_again_are_told_in_every_request(turnkit_model: UseModel):
    model = turnkit_model([text("one"), call("safe", {"n": 1}), text("done")])
    target, waiter = helper.conversation().submit("one"), helper.conversation().submit("sum up")
    waiter.wait_for(target)

    assert drain() == 2

    assert ["wait_results" in str(request.messages) for request in model.requests] == [False, True, True]
    assert_clean(model=model)


def test_an_erased_target_is_not_told_of(turnkit_model: UseModel):
    model = turnkit_model(answers)
    gone, target = (helper.conversation().submit(task) for task in ("one", "two"))
    waiter = helper.conversation().submit("sum up").wait_for(gone, target)
    gone.conversation.delete()

    assert drain() == 2

    assert [each["turn_id"] for each in told(model)] == [target.pk]
    assert Wait.objects.filter(turn=waiter).count() == 1
    assert_clean()


def test_a_whole_chain_of_joins_is_drained(turnkit_model: UseModel):
    model = turnkit_model(answers)
    with heard() as events:
        turns = [helper.conversation().prepare(f"step {number}") for number in range(4)]
        turns[0].submit()
        for before, after in itertools.pairwise(turns):
            after.wait_for(before).submit()
        assert drain() == 4

    rows = Turn.objects.order_by("completed_at")
    assert [row.pk for row in rows] == [turn.pk for turn in turns]
    assert (types(events).count("turn.waiting"), types(events).count("turn.ready")) == (3, 3)
    assert_told_once(events)
    assert_clean(model=model)


def test_a_turn_that_waits_says_for_which_turns(turnkit_model: UseModel):
    turnkit_model(answers)
    targets = [helper.conversation().submit(task) for task in ("one", "two")]
    waiter = helper.conversation().submit("sum up").wait_for(*targets, helper.conversation().submit("x").cancel())

    found = waiter.explain()

    assert (found.reason, [each.id for each in found.waiting_on]) == (
        Reason.DEPENDENCIES,
        [target.pk for target in targets],
    )
    assert runner.run_next()
    assert [each.id for each in waiter.explain().waiting_on] == [targets[1].pk]
    assert "misses 1 thing " in waiter.explain().summary


def test_a_turn_behind_one_that_waits_says_so_and_one_before_it_does_not(turnkit_model: UseModel):
    turnkit_model(answers)
    conversation, target = helper.conversation(), helper.conversation().submit("one")
    before, waiter, behind = (conversation.submit(each) for each in ("first", "second", "third"))
    waiter.wait_for(target)

    assert before.explain().reason is Reason.WAKE_UP_SENT
    assert (behind.explain().reason, behind.explain().waiting_on[0].id) == (Reason.BEHIND_IN_LANE, before.pk)
    before.cancel()
    assert behind.explain().waiting_on[0].id == waiter.pk
