"""Pause and resume: a turn stands still before its next step, keeps what it has, and goes on from there."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.testapp.agents import helper, safe, unsafe
from tests.testapp.delegating_agents import BOSS, boss
from tests.testapp.models import Effect
from turnkit_django import Agent, ToolContext, errors, failpoints, register, tool
from turnkit_django.agents import get_agent
from turnkit_django.engine import reconcile, runner
from turnkit_django.models import Turn
from turnkit_django.testing import Crash, assert_clean, call, crash_at, drain, text
from turnkit_django.tools import LaunchAgent, SubAgentTool

pytestmark = pytest.mark.django_db(transaction=True)


@tool(recovery="replay_safe")
def pausing(n: int = 0, *, context: ToolContext) -> dict[str, object]:
    """Have somebody pause the turn meanwhile."""
    Turn.objects.get(pk=context.turn.pk).pause()
    return safe.call(n, context=context)


@pytest.fixture(autouse=True)
def pauser() -> Agent:
    return register(Agent(name="pauser", model="openai/gpt-5-mini", tools=[pausing, safe, unsafe], max_iterations=2))


def now(turn: Turn) -> Turn:
    return Turn.objects.get(pk=turn.pk)


def run_one() -> None:
    assert runner.run_next()


def paused_meanwhile(answer: Any, *then: Callable[[Turn], object]) -> Callable[[Any], Any]:
    """A model that is slow enough for somebody to pause the turn, and to do more."""

    def said(request: Any) -> Any:
        turn = Turn.objects.get(pk=request.metadata["turn_id"]).pause()
        assert (turn.status, turn.pause_requested) == ("running", True)
        for step in then:
            step(turn)
        return answer

    return said


def test_a_pause_during_the_model_call_keeps_the_answer_back_and_resuming_publishes_it(turnkit_model):
    """95, 96, 98: the model is called once."""
    model = turnkit_model([paused_meanwhile(text("hi"))])
    conversation = helper.conversation()
    turn = conversation.submit("please")
    behind = conversation.submit("and then")

    run_one()
    turn.refresh_from_db()
    assert (turn.status, turn.claim_token, turn.pause_requested) == ("paused", None, False)
    assert (turn.phase, turn.output_text, turn.iterations) == ("output", "", 1)
    assert turn.usage == model.usage
    assert not conversation.messages.filter(role="assistant").exists()
    assert not runner.run_next()
    assert_clean(model=model)

    turn.resume().resume()
    assert now(turn).status == "pending"
    assert drain() == 2
    turn.refresh_from_db()
    assert (turn.status, turn.output_text, turn.iterations, turn.candidate) == ("completed", "hi", 1, None)
    assert now(behind).status == "completed"
    assert len(model.requests) == 2
    assert_clean(model=model)


def test_maintenance_and_workers_leave_a_paused_turn_alone(turnkit_model):
    """97."""
    turnkit_model([text("hi")])
    turn = helper.conversation().submit("please").pause()

    assert reconcile.run_pass(batch=10).total == 0
    assert drain() == 0
    assert now(turn).status == "paused"
    assert "resume()" in turn.explain().action


@pytest.mark.parametrize("following", ["safe", "unsafe"])
def test_a_pause_during_a_tool_keeps_its_result_and_stops_before_the_next(turnkit_model, pauser, following):
    """99. A next tool that may be repeated was started in the commit of the result: it was not called either."""
    model = turnkit_model([[call("pausing", {"n": 1}), call(following, {"n": 2})], text("done")])
    turn = pauser.submit("please").turn

    run_one()
    turn.refresh_from_db()
    assert (turn.status, turn.phase, turn.claim_token) == ("paused", "tools", None)
    executions = turn.tool_executions.order_by("ordinal")
    assert list(executions.values_list("status", flat=True)) == ["completed", "pending"]
    assert executions[1].started_at is None
    assert Effect.objects.count() == 1
    assert_clean(model=model)

    turn.resume()
    assert drain() == 1
    assert now(turn).status == "completed"
    assert Effect.objects.count() == 2
    assert_clean(model=model)


def test_a_pause_before_the_next_model_call_gives_its_reservation_back(turnkit_model, pauser):
    """108: what was used stays used, and what was not sent is not."""
    model = turnkit_model([call("pausing", {"n": 1}), call("safe", {"n": 2}), text("too many")])
    turn = pauser.submit("please").turn

    run_one()
    turn.refresh_from_db()
    assert (turn.status, turn.iterations, turn.attempt_id, turn.unknown_attempts) == ("paused", 1, None, 0)
    turn.resume()
    assert drain() == 1
    turn.refresh_from_db()
    assert (turn.status, turn.iterations) == ("failed", 2)
    assert "maximum iterations reached" in turn.error["message"]
    assert_clean(model=model)


def test_what_is_paused_before_it_is_submitted_does_not_start_when_it_is(turnkit_model):
    """101."""
    turnkit_model([text("hi")])
    conversation = helper.conversation()
    turn = conversation.prepare("please", key="k").pause()

    assert conversation.submit("please", key="k").status == "paused"
    assert turn.submit().status == "paused"
    assert drain() == 0
    turn.resume()
    assert drain() == 1
    assert now(turn).output_text == "hi"
    assert_clean()


def test_what_is_paused_before_it_is_run_here_is_pending_again_when_it_is_resumed(turnkit_model):
    model = turnkit_model([text("hi")])
    turn = helper.conversation().prepare("please").pause()

    assert turn.run().status == "paused"
    assert model.requests == []
    assert turn.resume().status == "pending"
    assert turn.run().output_text == "hi"
    assert_clean(model=model)


def test_a_turn_that_runs_here_is_paused_and_goes_on_with_the_next_run(turnkit_model):
    model = turnkit_model([paused_meanwhile(text("hi"))])
    conversation = helper.conversation()

    turn = conversation.ask("please")
    assert (turn.status, turn.output_text) == ("paused", "")
    with pytest.raises(errors.LaneBusy):
        conversation.ask("something else")
    assert turn.resume().status == "pending"
    assert turn.run().output_text == "hi"
    assert len(model.requests) == 1
    assert_clean(model=model)


@pytest.mark.parametrize("go_on", [lambda turn: turn.run(), lambda turn: turn.submit()])
def test_what_was_submitted_behind_a_paused_turn_that_ran_here_waits_for_it(turnkit_model, go_on):
    model = turnkit_model([paused_meanwhile(text("hi")), text("next")])
    conversation = helper.conversation()
    turn = conversation.ask("please")
    behind = conversation.submit("and then")

    assert drain() == 0
    go_on(turn.resume())
    drain()
    assert [now(each).output_text for each in (turn, behind)] == ["hi", "next"]
    assert_clean(model=model)


def test_a_pause_that_is_taken_back_in_time_changes_nothing(turnkit_model):
    turnkit_model([paused_meanwhile(text("hi"), lambda turn: turn.resume())])
    turn = helper.conversation().submit("please")

    assert drain() == 1
    assert now(turn).output_text == "hi"
    assert_clean()


def test_a_pause_that_is_taken_back_when_the_worker_has_heard_of_it_changes_nothing(turnkit_model, pauser):
    model = turnkit_model([call("pausing", {"n": 1}), text("hi")])
    turn = pauser.submit("please").turn

    def take_back(name: str) -> None:
        if name == "result_stored":
            turn.resume()

    failpoints.arm(take_back)
    run_one()
    failpoints.arm(None)
    assert now(turn).output_text == "hi"
    assert_clean(model=model)


def test_a_cascade_pauses_the_children_and_no_other_tree(turnkit_model):
    """102, 103."""
    turnkit_model(delegating)
    turn, other = boss.conversation().submit("delegate"), boss.conversation().submit("delegate")
    run_one()
    run_one()

    turn.refresh_from_db()
    turn.pause(descendants="cascade")
    assert [now(turn).status, *turn.children.values_list("status", flat=True)] == ["paused"] * 3
    assert [now(other).status, *other.children.values_list("status", flat=True)] == ["waiting", "pending", "pending"]
    assert drain() == 3
    assert now(other).status == "completed"

    turn.resume(descendants="cascade")
    assert [now(turn).status, *turn.children.values_list("status", flat=True)] == ["waiting", "pending", "pending"]
    assert drain() == 3
    assert now(turn).status == "completed"
    assert_clean()


def delegating(request: Any) -> Any:
    if request.model != BOSS or request.messages[-1]["role"] == "tool":
        return text("ready")
    return [call("writer", {"task": "write"}), call("reader", {"task": "read"})]


def test_children_end_while_their_parent_is_paused_and_it_goes_on_with_their_results(turnkit_model):
    """103, 107."""
    model = turnkit_model(delegating)
    turn = boss.conversation().submit("delegate")
    run_one()
    now(turn).pause()

    assert drain() == 2
    turn.refresh_from_db()
    assert (turn.status, turn.pending_dependencies) == ("paused", 0)
    assert turn.resume().status == "pending"
    assert drain() == 1
    assert now(turn).status == "completed"
    assert len([request for request in model.requests if request.model == BOSS]) == 2
    assert_clean(model=model)


def test_a_paused_turn_keeps_its_waits(turnkit_model):
    """104."""
    turnkit_model([])
    target = helper.conversation().submit("first")
    turn = helper.conversation().submit("second").wait_for(target).pause()

    assert turn.resume().status == "waiting"
    turn.pause()
    target.cancel()
    assert (now(turn).status, now(turn).pending_dependencies) == ("paused", 0)
    assert turn.resume().status == "pending"
    assert drain() == 1
    assert "wait_results" in turn.messages.filter(role="user").order_by("sequence").last().text
    assert_clean()


def test_the_deadline_runs_on_while_a_turn_is_paused(turnkit_model):
    """105."""
    turnkit_model([])
    turn = helper.conversation().submit("please")
    submitted_at = turn.pause().submitted_at
    Turn.objects.update(deadline_at=submitted_at)

    assert reconcile.run_pass(batch=10).overdue == 1
    turn.refresh_from_db()
    assert (turn.status, turn.submitted_at) == ("failed", submitted_at)
    assert "timed out" in turn.error["message"]
    assert_clean()


class PausingDelegate(SubAgentTool):
    """Have somebody pause the turn while the task is made."""

    agent = helper
    has_paused = False

    def task_for(self) -> str:
        if not PausingDelegate.has_paused:
            PausingDelegate.has_paused = True
            Turn.objects.get(agent_name="delegator").pause()
        return "help"


def test_a_pause_while_a_child_is_about_to_be_launched_starts_none(turnkit_model):
    """106."""
    PausingDelegate.has_paused = False
    register(Agent(name="delegator", model=BOSS, tools=[PausingDelegate]))
    model = turnkit_model([call("pausing_delegate", {}), text("ready"), text("done")])
    turn = get_agent("delegator").submit("please").turn

    run_one()
    turn.refresh_from_db()
    assert (turn.status, turn.children.count(), turn.pending_dependencies) == ("paused", 0, 0)
    assert turn.tool_executions.get().started_at is None
    assert_clean(model=model)

    turn.resume()
    assert drain() == 3
    assert (now(turn).status, turn.children.count()) == ("completed", 1)
    assert_clean(model=model)


@pytest.mark.parametrize("point", ["responded", "tool_started"])
def test_a_worker_that_dies_leaves_a_turn_paused_that_was_told_to_pause(turnkit_model, pauser, point):
    model = turnkit_model(lambda request: text("hi") if request.messages[-1]["role"] == "tool" else call("unsafe", {}))
    turn = pauser.submit("please").turn
    with pytest.raises(Crash), crash_at(point):
        runner.run_next()
    turn.refresh_from_db()
    turn.pause()

    assert reconcile.recover(turn.pk, turn.claim_token, 0, is_dead=True)
    assert (now(turn).status, now(turn).attempts) == ("paused", 1)
    assert drain() == 0
    assert_clean(model=model)
    Turn.objects.update(not_before=None)
    turn.resume()
    assert drain() == 1
    assert now(turn).status in {"completed", "failed"}
    assert_clean(model=model)


def test_a_turn_whose_provider_is_down_is_paused_instead_of_parked(turnkit_model):
    model = turnkit_model([paused_meanwhile({"error": {"status": 503, "retry_after": 60}}), text("hi")])
    turn = helper.conversation().submit("please")

    run_one()
    assert (now(turn).status, now(turn).model_failures) == ("paused", 1)
    assert turn.resume().status == "pending"
    assert drain() == 0
    Turn.objects.update(not_before=None)
    assert drain() == 1
    assert now(turn).output_text == "hi"
    assert_clean(model=model)


def test_a_message_to_a_paused_lane_wakes_nobody_and_is_read_when_it_goes_on(turnkit_model):
    """100, with decision B8: what a turn sees is fixed at its first claim."""
    model = turnkit_model([text("read it")])
    conversation = helper.conversation()
    turn = conversation.submit("please").pause()
    sent = conversation.post("more", key="k")

    assert drain() == 0
    assert conversation.turns.count() == 1
    turn.resume()
    assert drain() == 1
    assert conversation.input_status(sent).status == "applied"
    assert_clean(model=model)


@pytest.mark.parametrize("act", ["pause", "resume"])
def test_an_ended_turn_is_not_revived(turnkit_model, act):
    """110."""
    turnkit_model([])
    turn = helper.conversation().submit("please").cancel()
    assert getattr(turn, act)().status == "cancelled"
    assert drain() == 0
    assert_clean()


def test_a_cancel_wins_over_a_pause_and_over_what_it_kept_back(turnkit_model):
    """127."""
    model = turnkit_model([paused_meanwhile(text("hi"))])
    conversation = helper.conversation()
    turn = conversation.submit("please")
    run_one()

    turn.refresh_from_db()
    assert turn.cancel().status == "cancelled"
    assert turn.resume().status == "cancelled"
    assert not conversation.messages.filter(role="assistant").exists()
    assert_clean(model=model)


def test_a_running_turn_that_was_told_to_pause_is_cancelled_all_the_same(turnkit_model):
    model = turnkit_model([paused_meanwhile(text("hi"), lambda turn: turn.cancel())])
    turn = helper.conversation().submit("please")
    run_one()
    turn.refresh_from_db()
    assert (turn.status, turn.pause_requested, turn.output_text) == ("cancelled", False, "")
    assert_clean(model=model)


def test_a_cascade_cancels_what_is_below_the_turn_and_nothing_beside_or_above_it(turnkit_model):
    """124, 125."""
    steps = {"delegate": [call("writer", {"task": "write"}), call("reader", {"task": "read"})]}
    turnkit_model(lambda request: steps.get(request.messages[-1]["content"], text("ready")))
    middle = register(Agent(name="middle", model="openai/gpt-5-mini", sub_agents=[helper]))
    top = register(Agent(name="top", model="openai/gpt-5-mini", sub_agents=[middle, helper]))
    steps["go"] = [call("middle", {"task": "go down"}), call("helper", {"task": "help"})]
    steps["go down"] = call("helper", {"task": "help"})
    root = top.conversation().submit("go")
    run_one()
    child = root.children.get(agent_name="middle")
    while not child.children.exists():
        run_one()
    sibling = root.children.get(agent_name="helper")
    before = (now(root).status, now(sibling).status)

    assert now(child).cancel(descendants="cascade").status == "cancelled"
    assert child.children.get().status == "cancelled"
    assert (now(root).status, now(sibling).status) == before
    drain()
    assert now(root).status == "completed"
    assert_clean()


def test_a_cascade_from_the_root_ends_the_whole_tree_at_once(turnkit_model):
    turnkit_model(delegating)
    turn = boss.conversation().submit("delegate")
    run_one()

    now(turn).cancel(descendants="cascade")
    assert [now(turn).status, *turn.children.values_list("status", flat=True)] == ["cancelled"] * 3
    assert drain() == 0
    assert_clean()


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel"])
def test_descendants_are_retained_or_cascaded_and_nothing_else(verb):
    turn = helper.conversation().prepare("please")
    with pytest.raises(
        errors.InputError, match=f"{turn.pk}: expected descendants to be 'retain' or 'cascade', got 'all'"
    ):
        getattr(turn, verb)(descendants="all")
    assert now(turn).status == "pending"


@pytest.mark.parametrize("tool_name", ["unsafe", "launch_agent"])
def test_a_pause_in_the_last_moment_before_a_tool_is_heard(turnkit_model, tool_name):
    """Decision D9."""
    agent = register(Agent(name="late", model="openai/gpt-5", tools=[unsafe, LaunchAgent], sub_agents=[helper]))
    arguments = {"agent_name": "helper", "task": "help"} if tool_name == "launch_agent" else {}
    model = turnkit_model([call(tool_name, arguments), text("ready"), text("done")])
    turn = agent.submit("please").turn

    def pause(name: str) -> None:
        if name in {"start_tool.before", "launch_detached.before"}:
            failpoints.arm(None)
            now(turn).pause()

    failpoints.arm(pause)
    run_one()
    turn.refresh_from_db()
    assert (turn.status, turn.children.count(), Effect.objects.count()) == ("paused", 0, 0)
    assert turn.tool_executions.get().status == "pending"
    assert_clean(model=model)

    turn.resume()
    drain()
    assert now(turn).status == "completed"
    assert turn.children.count() + Effect.objects.count() == 1
    assert_clean(model=model)
