"""Messages, launches and waits that a model asks for."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.testapp.delegating_agents import BOSS, boss
from turnkit_django import Agent, register
from turnkit_django.engine import runner
from turnkit_django.models import Delivery, Turn, Wait
from turnkit_django.testing import assert_clean, call, drain, text
from turnkit_django.tools import LaunchAgent, SendMessage, WaitFor

pytestmark = pytest.mark.django_db(transaction=True)

LAUNCH = call("launch_agent", {"agent_name": "writer", "task": "write"})


def last_result(request: Any) -> Any:
    last = request.messages[-1]
    return json.loads(last["content"]) if last["role"] == "tool" else None


def boss_says(*steps: Any) -> Callable[[Any], Any]:
    """Steps of the boss, callables of the request among them; all others say one thing."""
    left = list(steps)

    def answer(request: Any) -> Any:
        step = left.pop(0) if request.model == BOSS else text("ready")
        return step(request) if callable(step) else step

    return answer


def wait_for_last(request: Any) -> Any:
    return call("wait_for", {"turn_ids": [last_result(request)["turn_id"]]})


def test_the_wait_tool_suspends_and_resumes_without_asking_the_model_again(turnkit_model):
    model = turnkit_model(boss_says(LAUNCH, wait_for_last, text("all done")))
    turn = boss.conversation().submit("do it")
    assert runner.run_next()
    turn.refresh_from_db()
    assert (turn.status, turn.pending_dependencies, turn.claim_token) == ("waiting", 1, None)
    drain()
    turn.refresh_from_db()
    _, waited = turn.tool_executions.order_by("ordinal")
    assert (turn.status, turn.iterations, waited.status) == ("completed", 3, "completed")
    assert [(end["status"], end["result"]) for end in waited.result["results"]] == [("completed", "ready")]
    assert Wait.objects.count() == 1
    assert_clean(model=model)


def test_waiting_for_turns_that_have_ended_answers_at_once_in_the_order_named(turnkit_model):
    launched: list[str] = []

    def note(request: Any) -> Any:
        launched.append(last_result(request)["turn_id"])
        return LAUNCH if len(launched) < 2 else call("wait_for", {"turn_ids": launched})

    def again(request: Any) -> Any:
        return call("wait_for", {"turn_ids": [*reversed(launched), launched[1]]})

    model = turnkit_model(boss_says(LAUNCH, note, note, again, text("done")))
    turn = boss.conversation().submit("do it")
    drain()
    turn.refresh_from_db()
    *_, second = turn.tool_executions.order_by("ordinal")
    assert turn.status == "completed"
    assert [end["turn_id"] for end in second.result["results"]] == launched[::-1]
    assert_clean(model=model)


@pytest.mark.parametrize("wanted", [[], ["turn_nowhere"], ["x" * 5000], ["\x00"], "foreign", "itself"])
def test_ids_that_cannot_be_waited_for_are_errors_that_the_model_reads(wanted, turnkit_model):
    foreign = boss.conversation().prepare("mine")

    def ask(request: Any) -> Any:
        own = Turn.objects.get(status="running").pk
        return call("wait_for", {"turn_ids": {"foreign": [foreign.pk], "itself": [own]}.get(str(wanted), wanted)})

    model = turnkit_model(boss_says(ask, text("then not")))
    turn = boss.conversation().submit("do it")
    drain()
    turn.refresh_from_db()
    (execution,) = turn.tool_executions.all()
    assert (turn.status, execution.status, execution.error["type"]) == ("completed", "failed", "ToolError")
    assert Wait.objects.count() == 0
    assert_clean(model=model)


def test_a_wait_that_would_close_a_cycle_is_an_error_that_the_model_reads(turnkit_model):
    inner = register(Agent(name="inner", model="inner-model", tools=[WaitFor]))
    outer = register(Agent(name="outer", model="outer-model", tools=[LaunchAgent, WaitFor], sub_agents=[inner]))
    first = outer.conversation().prepare("do it")

    def answer(request: Any) -> Any:
        result = last_result(request)
        if request.model == "inner-model":
            return text("then not") if result else call("wait_for", {"turn_ids": [first.pk]})
        if result is None:
            return call("launch_agent", {"agent_name": "inner", "task": "wait for me"})
        return call("wait_for", {"turn_ids": [result["turn_id"]]}) if "turn_id" in result else text("done")

    model = turnkit_model(answer)
    first.submit()
    drain()
    child = Turn.objects.get(agent_name="inner")
    (execution,) = child.tool_executions.all()
    assert (child.status, execution.status, execution.error["type"]) == ("completed", "failed", "ToolError")
    assert "cycle" in execution.error["message"]
    assert list(Wait.objects.values_list("turn", "target")) == [(first.pk, child.pk)]
    assert Turn.objects.get(pk=first.pk).output_text == "done"
    assert_clean(model=model)


def test_a_turn_that_runs_here_does_not_wait_for_what_a_worker_has_to_do(turnkit_model):
    model = turnkit_model(boss_says(LAUNCH, wait_for_last, text("then not")))
    turn = boss.conversation().ask("do it")
    _, waited = turn.tool_executions.order_by("ordinal")
    assert (turn.status, waited.error["type"]) == ("completed", "ToolError")
    assert "Only a submitted turn" in waited.error["message"]
    drain()
    assert_clean(model=model)


def test_a_message_starts_a_turn_in_the_other_conversation_for_its_own_principal(turnkit_model):
    other = boss.conversation(principal="theirs")
    model = turnkit_model(
        boss_says(call("send_message", {"conversation_id": other.pk, "text": "hello"}), text("sent"), text("read"))
    )
    turn = boss.conversation(principal="mine").submit("greet them")
    drain()
    turn.refresh_from_db()
    (execution,) = turn.tool_executions.all()
    (delivery,) = Delivery.objects.all()
    assert (turn.status, execution.result) == ("completed", {"delivery_id": delivery.pk, "status": "sent"})
    assert (delivery.source_turn_id, delivery.principal, delivery.hops) == (turn.pk, "mine", 1)
    answer = other.turns.get()
    assert (answer.status, answer.principal, answer.hops, answer.output_text) == ("completed", "theirs", 1, "read")
    assert_clean(model=model)


@pytest.mark.parametrize(("conversation_id", "words"), [("conv_nowhere", "hi"), ("", "hi"), (None, "  ")])
def test_a_message_that_cannot_be_sent_is_an_error_that_the_model_reads(conversation_id, words, turnkit_model):
    there = conversation_id if conversation_id is not None else boss.conversation().pk
    arguments = {"conversation_id": there, "text": words}
    model = turnkit_model(boss_says(call("send_message", arguments), text("then not")))
    turn = boss.conversation().submit("greet them")
    drain()
    turn.refresh_from_db()
    (execution,) = turn.tool_executions.all()
    assert (turn.status, execution.status, Delivery.objects.count()) == ("completed", "failed", 0)
    assert_clean(model=model)


def test_two_agents_that_answer_each_other_end_at_a_limit(turnkit_model, configure):
    configure({"MAX_HOPS": 3})
    echo = Agent(name="echo", model=BOSS, tools=[SendMessage])
    register(echo)
    conversations = [echo.conversation(), echo.conversation()]
    partners = dict(zip((each.pk for each in conversations), (each.pk for each in conversations[::-1]), strict=True))

    def answer(request: Any) -> Any:
        if request.messages[-1]["role"] == "tool":
            return text("told them")
        return call("send_message", {"conversation_id": partners[request.metadata["conversation_id"]], "text": "you!"})

    model = turnkit_model(answer)
    conversations[0].submit("begin")
    drain()
    assert list(Turn.objects.order_by("created_at").values_list("hops", flat=True)) == [0, 1, 2, 3]
    assert Delivery.objects.count() == 3
    refused = Turn.objects.get(hops=3).tool_executions.get()
    assert (refused.status, "MAX_HOPS" in refused.error["message"]) == ("failed", True)
    assert_clean(model=model)


def test_one_worker_with_one_slot_finishes_a_tree_of_three_levels_and_forty_turns(turnkit_model):
    leaf = register(Agent(name="leaf", model="leaf-model", instructions="Be a leaf."))
    branch = register(Agent(name="branch", model="branch-model", sub_agents=[leaf]))
    root = register(Agent(name="root", model="root-model", sub_agents=[branch]))
    below = {"root-model": ("branch", 3), "branch-model": ("leaf", 12)}

    def answer(request: Any) -> Any:
        if request.model not in below or request.messages[-1]["role"] == "tool":
            return text("done")
        name, count = below[request.model]
        return [call(name, {"task": f"part {number}"}) for number in range(count)]

    model = turnkit_model(answer)
    run = root.submit("grow")
    drain()
    assert (run.turns.count(), run.children.count(), run.descendants.count()) == (1 + 3 + 36, 3, 39)
    assert set(run.turns.values_list("status", flat=True)) == {"completed"}
    assert (run.refresh().output_text, len(model.requests)) == ("done", 2 + 3 * 2 + 36)
    assert_clean(model=model)
