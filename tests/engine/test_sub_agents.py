"""Agents as tools of agents: what the caller gets, who holds a worker meanwhile, and what a crash leaves behind."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from tests.events.recording import heard
from tests.testapp.delegating_agents import BOSS, WRITER, boss, hidden, writer
from turnkit_django import Agent, errors, register
from turnkit_django.agents import get_agent, registry
from turnkit_django.engine import runner
from turnkit_django.models import Conversation, ToolExecution, Turn, Wait
from turnkit_django.store import transitions
from turnkit_django.testing import Crash, ScriptedModel, assert_clean, call, crash_at, drain, text
from turnkit_django.tools import SubAgentTool

pytestmark = pytest.mark.django_db(transaction=True)


def script(*boss_steps: Any, **others: Any) -> Callable[[Any], Any]:
    """Steps of the boss in order; the others answer in one way each."""
    steps = list(boss_steps)

    def answer(request: Any) -> Any:
        if request.model.endswith("gpt-5"):
            return steps.pop(0)
        said = others.get("writer" if request.model.endswith("mini") else "reader", text("ready"))
        return said(request) if callable(said) else said

    return answer


def told(turn: Turn) -> list[Any]:
    """What the calls of a turn have brought, in call order."""
    return [execution.result for execution in turn.tool_executions.order_by("ordinal")]


def results(model: ScriptedModel) -> list[str]:
    """The results that the boss's last request shows, in order."""
    last = [request for request in model.requests if request.model == BOSS][-1]
    return [message["content"] for message in last.messages if message["role"] == "tool"]


def run_one() -> None:
    assert runner.run_next()


def test_a_background_parent_waits_without_a_worker_for_all_its_children(turnkit_model):
    model = turnkit_model(
        script(
            [call("writer", {"task": "write one"}), call("reader", {"task": "read two"})],
            text("both are there"),
            writer=text("one"),
            reader=text("two"),
        )
    )
    turn = boss.conversation(principal={"user": 7}).submit("do it")
    run_one()
    turn.refresh_from_db()
    assert (turn.status, turn.claim_token, turn.pending_dependencies) == ("waiting", None, 2)
    children = list(turn.children.order_by("created_at", "pk"))
    assert {child.status for child in children} == {"pending"}
    assert [(child.depth, child.root_id, child.parent_id) for child in children] == [(1, turn.pk, turn.pk)] * 2
    assert {child.principal["user"] for child in children} == {7}
    assert {child.conversation_id for child in children}.isdisjoint({turn.conversation_id})
    run_one()
    turn.refresh_from_db()
    assert (turn.status, turn.pending_dependencies) == ("waiting", 1)
    drain()
    turn.refresh_from_db()
    assert (turn.status, turn.output_text, turn.iterations) == ("completed", "both are there", 2)
    assert [(result["status"], result["result"]) for result in told(turn)] == [
        ("completed", "one"),
        ("completed", "two"),
    ]
    assert len([request for request in model.requests if request.model == BOSS]) == 2
    assert_clean(model=model)


def test_results_reach_the_parent_in_call_order_whoever_is_ready_first(turnkit_model):
    model = turnkit_model(
        script(
            [call("writer", {"task": "first"}), call("reader", {"task": "second"})],
            text("done"),
            writer=text("one"),
            reader=text("two"),
        )
    )
    turn = boss.conversation().submit("do it")
    run_one()
    slow, quick = turn.children.order_by("created_at", "pk")
    slow.cancel()
    drain()
    assert [("cancelled" in each, "two" in each) for each in results(model)] == [(True, False), (False, True)]
    assert (slow.status, Turn.objects.get(pk=quick.pk).status) == ("cancelled", "completed")
    assert_clean(model=model)


def test_children_run_at_the_same_time_and_the_parent_waits_for_the_last(turnkit_model):
    model = turnkit_model(script([call("writer", {"task": "first"}), call("reader", {"task": "second"})], text("done")))
    turn = boss.conversation().submit("do it")
    run_one()
    first, second = sorted(transitions.claim(runner.holder(slots=2)), key=lambda one: one.turn.agent_name != "writer")
    assert set(turn.children.values_list("status", flat=True)) == {"running"}

    transitions.complete(second.claim, text="two", reply=None)
    turn.refresh_from_db()
    assert (turn.status, turn.pending_dependencies) == ("waiting", 1)
    assert not runner.run_next()
    transitions.complete(first.claim, text="one", reply=None)
    turn.refresh_from_db()
    assert (turn.status, turn.pending_dependencies) == ("pending", 0)
    run_one()

    assert [("one" in each, "two" in each) for each in results(model)] == [(True, False), (False, True)]
    assert len(model.requests) == 2


def test_an_invalid_call_among_them_fails_alone_and_in_its_place(turnkit_model):
    model = turnkit_model(
        script(
            [call("writer", {"task": "one"}), call("reader", {"job": "nonsense"}), call("reader", {"task": "three"})],
            text("done"),
        )
    )
    turn = boss.conversation().submit("do it")
    run_one()
    assert turn.children.count() == 2
    drain()
    assert list(turn.tool_executions.order_by("ordinal").values_list("status", flat=True)) == [
        "completed",
        "failed",
        "completed",
    ]
    assert ["error" in each for each in results(model)] == [False, True, False]
    assert_clean(model=model)


def test_calls_behind_another_tool_are_another_group(turnkit_model):
    model = turnkit_model(
        script([call("writer", {"task": "one"}), call("nobody", {}), call("reader", {"task": "two"})], text("done"))
    )
    turn = boss.conversation().submit("do it")
    run_one()
    assert turn.children.count() == 1
    drain()
    turn.refresh_from_db()
    assert (turn.children.count(), turn.status) == (2, "completed")
    assert_clean(model=model)


def test_a_terminal_tool_before_them_prevents_their_launch(turnkit_model):
    model = turnkit_model(script([call("finish", {"words": "enough"}), call("writer", {"task": "never"})]))
    turn = boss.conversation().submit("do it")
    drain()
    turn.refresh_from_db()
    assert (turn.status, turn.output_text, turn.children.count()) == ("completed", "enough", 0)
    assert list(turn.tool_executions.order_by("ordinal").values_list("status", flat=True)) == ["completed", "cancelled"]
    assert_clean(model=model)


def test_a_child_that_fails_is_told_to_the_parent_as_data(turnkit_model):
    model = turnkit_model(script(call("writer", {"task": "one"}), text("it failed"), writer={"error": {"status": 400}}))
    turn = boss.conversation().submit("do it")
    drain()
    turn.refresh_from_db()
    (result,) = told(turn)
    assert (turn.status, result["status"], result["error"]["type"]) == ("completed", "failed", "PermanentModelError")
    assert_clean(model=model)


def test_the_child_sees_its_task_and_nothing_else_of_the_parent(turnkit_model):
    model = turnkit_model(script(call("writer", {"task": "write a poem"}), text("done"), writer=text("a poem")))
    boss.conversation(context={"secret": 1}).submit("the customer's own words")
    drain()
    (request,) = [request for request in model.requests if request.model == WRITER]
    assert [message["content"] for message in request.messages] == ["write a poem"]
    assert (request.instructions, request.tools) == ("Write.", ())
    child = Turn.objects.get(agent_name="writer")
    assert child.context == {}
    assert child.conversation.metadata["parent_turn_id"] == child.parent_id


def test_a_tool_of_the_parent_is_unknown_to_its_child(turnkit_model):
    def answer(request: Any) -> Any:
        return text("without it") if request.messages[-1]["role"] == "tool" else call("finish", {"words": "mine?"})

    model = turnkit_model(script(call("writer", {"task": "write"}), text("done"), writer=answer))
    boss.conversation().submit("do it")
    drain()
    child = Turn.objects.get(agent_name="writer")
    assert (child.output_text, child.tool_executions.get().error["type"]) == ("without it", "UnknownTool")
    assert_clean(model=model)


def test_a_delegation_is_told_with_its_call_its_agent_and_the_length_of_the_task(turnkit_model):
    turnkit_model(script(call("writer", {"task": "write a poem"}), text("done")))
    turn = boss.conversation().submit("do it")
    with heard() as events:
        run_one()
    (told,) = [event for event in events if event.type == "sub_agent.delegated"]
    child = turn.children.get()
    assert (told.turn_id, told.execution_id) == (turn.pk, turn.tool_executions.get().pk)
    assert (told.child_turn_id, told.child_agent_name, told.task_chars) == (child.pk, "writer", len("write a poem"))


def test_a_run_shows_and_sums_its_whole_tree(turnkit_model):
    model = turnkit_model(
        script(call("writer", {"task": "one"}), text("done"), writer=text("one")), cost=Decimal("0.25")
    )
    run = boss.submit("do it")
    drain()
    assert (run.usage, run.cost) == (model.usage, Decimal("0.75"))
    assert run.messages.count() == 4 + 2
    assert (run.tool_executions.count(), run.turns.count(), run.failed_turns.count()) == (1, 2, 0)


@pytest.mark.parametrize("start", ["submit", "ask"])
def test_an_agent_that_is_not_registered_any_more_fails_the_call(turnkit_model, start):
    del registry._agents["writer"]
    model = turnkit_model(script(call("writer", {"task": "one"}), text("without it")))
    turn = getattr(boss.conversation(), start)("do it")
    drain()
    turn.refresh_from_db()
    (execution,) = turn.tool_executions.all()
    assert (turn.status, turn.children.count()) == ("completed", 0)
    assert (execution.status, execution.error["type"], "writer" in execution.error["message"]) == (
        ("failed", "ConfigError", True)
    )
    assert_clean(model=model)


def test_a_typed_delegation_keeps_the_bulk_away_from_the_parent(turnkit_model):
    model = turnkit_model(script(call("read_report", {"report_id": 3}), text("done"), reader=text("in short: bulk")))
    turn = boss.conversation().submit("read report 3")
    drain()
    asked = [request for request in model.requests if request.model == BOSS]
    assert all("bulk bulk" not in str(request.messages) for request in asked)
    (result,) = told(turn)
    assert result["result"] == "in short: bulk"
    child = turn.children.get()
    assert child.trigger.text.startswith("The report 3 says: bulk bulk")
    assert_clean(model=model)


def test_registering_an_agent_registers_those_it_delegates_to():
    assert get_agent("hidden_reader") is hidden


def test_inline_and_background_give_the_same_envelope(turnkit_model):
    model = turnkit_model(
        lambda request: (
            text("answer")
            if request.model != "gpt-5" and not request.model.endswith("/gpt-5")
            else (text("done") if request.messages[-1]["role"] == "tool" else call("writer", {"task": "one"}))
        )
    )
    inline = boss.conversation().ask("do it")
    submitted = boss.conversation().submit("do it")
    drain()
    envelopes = [told(turn)[0] for turn in (inline, submitted)]
    ids = ("conversation_id", "turn_id")
    assert [{key: value for key, value in each.items() if key not in ids} for each in envelopes] == [
        {"status": "completed", "result": "answer"}
    ] * 2
    assert {(turn.status, turn.children.get().status) for turn in (inline, submitted)} <= {
        ("completed", "completed"),
        ("pending", "completed"),
    }
    assert_clean(model=model)


def test_depth_is_limited_by_the_root(turnkit_model):
    deep = Agent(name="deep", model=BOSS, sub_agents=[writer], max_depth=0)
    register(deep)
    model = turnkit_model(script(call("writer", {"task": "one"}), text("alone then")))
    turn = deep.conversation().submit("do it")
    drain()
    (execution,) = turn.tool_executions.all()
    assert (execution.status, execution.error["type"]) == ("failed", "BudgetError")
    assert "maximum depth reached (0)" in execution.error["message"]
    assert turn.children.count() == 0
    assert_clean(model=model)


def test_a_detached_launch_returns_at_once_and_its_end_comes_back_as_a_message(turnkit_model):
    model = turnkit_model(
        script(
            call("launch_agent", {"agent_name": "writer", "task": "write", "callback": True}),
            text("launched"),
            text("thank you"),
            writer=text("written"),
        )
    )
    conversation = boss.conversation()
    turn = conversation.submit("do it")
    run_one()
    turn.refresh_from_db()
    assert (turn.status, turn.output_text) == ("completed", "launched")
    (result,) = told(turn)
    assert result["status"] == "pending"
    drain()
    later = conversation.turns.exclude(pk=turn.pk).get()
    assert (later.status, later.output_text) == ("completed", "thank you")
    assert "written" in later.trigger.text
    assert_clean(model=model)


def test_only_agents_of_the_own_ones_can_be_launched(turnkit_model):
    model = turnkit_model(script(call("launch_agent", {"agent_name": "helper", "task": "write"}), text("no")))
    turn = boss.conversation().submit("do it")
    drain()
    (execution,) = turn.tool_executions.all()
    assert execution.error["type"] == "ToolError"
    assert "hidden_reader, reader, writer" in execution.error["message"]
    assert_clean(model=model)


@pytest.mark.parametrize("place", ["before", "written", "committed"])
@pytest.mark.parametrize("move", ["launch", "launch_detached"])
def test_a_crash_in_the_launch_makes_no_second_child(move, place, turnkit_model):
    calls = {
        "launch": [call("writer", {"task": "one"}), call("reader", {"task": "two"})],
        "launch_detached": call("launch_agent", {"agent_name": "writer", "task": "one"}),
    }
    model = turnkit_model(script(calls[move], text("done")))
    turn = boss.conversation().submit("do it")
    with pytest.raises(Crash), crash_at(f"{move}.{place}"):
        run_one()
    running = Turn.objects.get(pk=turn.pk)
    if running.claim_token:
        from turnkit_django.engine import reconcile

        reconcile.recover(turn.pk, running.claim_token, 0, is_dead=True)
    drain()
    turn.refresh_from_db()
    assert turn.status == "completed"
    expected = 2 if move == "launch" else 1
    assert (Turn.objects.filter(parent=turn).count(), Conversation.objects.count()) == (expected, expected + 1)
    assert_clean(model=model)


def test_a_cancelled_parent_leaves_its_child_alone_and_says_what_it_does_not_know(turnkit_model):
    model = turnkit_model(script(call("writer", {"task": "one"}), text("never"), writer=text("late")))
    turn = boss.conversation().submit("do it")
    run_one()
    turn.cancel()
    (execution,) = turn.tool_executions.all()
    assert (execution.status, "unknown" in execution.error["message"]) == ("interrupted", True)
    drain()
    child = turn.children.get()
    assert (child.status, turn.messages.filter(content__icontains="late").count()) == ("completed", 0)
    assert_clean(model=model)


def test_a_child_that_was_erased_is_not_launched_again(turnkit_model):
    model = turnkit_model(script(call("writer", {"task": "one"}), text("gone then")))
    turn = boss.conversation().submit("do it")
    run_one()
    turn.children.get().conversation.delete()
    assert Wait.objects.count() == 0
    drain()
    turn.refresh_from_db()
    (execution,) = ToolExecution.objects.all()
    assert (turn.status, execution.status, Turn.objects.count()) == ("completed", "interrupted", 1)
    assert_clean(model=model)


@pytest.mark.parametrize("value", ["writer", [writer.name], [object()], None])
def test_sub_agents_must_be_a_list_of_agents(value):
    with pytest.raises(errors.ConfigError, match="`sub_agents` to be a list of agents"):
        Agent(name="wrong", sub_agents=value)


def test_a_delegating_tool_needs_an_agent():
    class Nowhere(SubAgentTool):
        """Delegate to nobody."""

    with pytest.raises(errors.ConfigError, match="expected `agent` to be the Agent that does it, got None"):
        Agent(name="wrong", tools=[Nowhere])


@pytest.mark.parametrize("task", ["", "  ", 7])
def test_a_task_that_is_no_text_fails_the_call(task, turnkit_model):
    class Blank(SubAgentTool):
        """Give no task."""

        name = "blank"
        agent = writer

        def task_for(self) -> str:
            return task

    register(Agent(name="blank_boss", model=BOSS, tools=[Blank]))
    model = turnkit_model(script(call("blank", {}), text("done")))
    turn = get_agent("blank_boss").conversation().submit("do it")
    drain()
    (execution,) = turn.tool_executions.all()
    assert execution.status == "failed"
    assert "text that is not blank" in execution.error["message"]
    assert_clean(model=model)
