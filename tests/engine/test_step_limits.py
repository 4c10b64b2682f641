"""A tool or a model call that takes too long loses its lease: the turn goes on without it, and says what is unknown."""

from datetime import timedelta
from typing import Any

import pytest

from turnkit_django import Agent, errors, register, tool
from turnkit_django.engine import heartbeat, reconcile, runner
from turnkit_django.models import Turn
from turnkit_django.models.querysets import ClockTime
from turnkit_django.testing import assert_clean, call, drain, text

pytestmark = pytest.mark.django_db(transaction=True)
MOMENT = timedelta(microseconds=1)


def hang_and_be_replaced() -> dict[str, Any]:
    """As long as a lease lives: the renewer passes the claim over, and maintenance gives the turn to another worker."""
    turn = Turn.objects.get(status="running")
    heartbeat.renew_all()
    renewed = Turn.objects.get(pk=turn.pk).lease_expires_at != turn.lease_expires_at
    Turn.objects.filter(pk=turn.pk).update(lease_expires_at=ClockTime() - timedelta(seconds=1))
    reconcile.run_pass(batch=10)
    return {"renewed": renewed, "status": Turn.objects.get(pk=turn.pk).status}


seen: list[dict[str, Any]] = []


@tool(timeout=MOMENT)
def slow() -> str:
    """Hang."""
    seen.append(hang_and_be_replaced())
    return "too late"


@tool(recovery="replay_safe", timeout=MOMENT)
def slow_once() -> str:
    """Hang the first time."""
    if not seen:
        seen.append(hang_and_be_replaced())
    return "in time"


@tool
def quick() -> str:
    """Look."""
    before = Turn.objects.get(status="running").lease_expires_at
    heartbeat.renew_all()
    seen.append({"renewed": Turn.objects.get(status="running").lease_expires_at > before})
    return "ok"


patient = register(Agent(name="patient", model="openai/gpt-5-mini", tools=[slow, slow_once, quick]))


@pytest.fixture(autouse=True)
def _forget() -> None:
    seen.clear()


def test_a_tool_over_its_limit_is_of_unknown_outcome_and_its_late_result_is_not_stored(turnkit_model):
    model = turnkit_model([call("slow", {}), text("then without")])
    turn = patient.conversation().submit("do it")
    assert runner.run_next()
    assert seen == [{"renewed": False, "status": "pending"}]
    Turn.objects.update(not_before=None)
    drain()
    turn.refresh_from_db()
    (execution,) = turn.tool_executions.all()
    assert (turn.status, turn.attempts, execution.status, execution.result) == ("completed", 1, "interrupted", None)
    assert_clean(model=model)


def test_the_model_is_told_that_the_time_ran_out_and_the_next_call_of_the_batch_runs(turnkit_model):
    """B31: the thread goes on, so the effect may still happen; nobody else's call is given up for it."""
    model = turnkit_model([[call("slow", {}), call("quick", {})], text("then without")])
    turn = patient.conversation().submit("do it")
    assert runner.run_next()
    Turn.objects.update(not_before=None)
    drain()
    turn.refresh_from_db()
    assert list(turn.tool_executions.order_by("ordinal").values_list("status", flat=True)) == [
        "interrupted",
        "completed",
    ]
    told = turn.messages.filter(role="tool").order_by("sequence")[0].content[0]["text"]
    assert ("its time ran out" in told, "it may still take effect" in told) == (True, True)
    assert (turn.output_text, len(model.requests)) == ("then without", 2)
    assert_clean(model=model)


def test_a_replay_safe_tool_over_its_limit_is_run_again(turnkit_model):
    model = turnkit_model([call("slow_once", {}), text("done")])
    turn = patient.conversation().submit("do it")
    assert runner.run_next()
    Turn.objects.update(not_before=None)
    drain()
    turn.refresh_from_db()
    assert (turn.status, turn.tool_executions.get().result) == ("completed", {"result": "in time"})
    assert_clean(model=model)


def test_a_model_call_over_its_limit_is_asked_again_with_an_unknown_bill(turnkit_model, monkeypatch):
    limits: list[float] = []
    within = heartbeat.Held.within

    def note(self: heartbeat.Held, seconds: float) -> Any:
        limits.append(seconds)
        return within(self, -1)

    monkeypatch.setattr(heartbeat.Held, "within", note)

    def answer(request: Any) -> Any:
        if not seen:
            seen.append(hang_and_be_replaced())
        return text("done")

    model = turnkit_model(answer)
    turn = patient.conversation().submit("do it")
    assert runner.run_next()
    Turn.objects.update(not_before=None)
    drain()
    turn.refresh_from_db()
    assert (limits, seen[0]["renewed"]) == ([600, 600], False)
    assert (turn.status, turn.unknown_attempts, turn.cost) == ("completed", 1, None)
    assert_clean(model=model)


def test_within_its_limit_a_step_is_renewed(turnkit_model):
    turnkit_model([call("quick", {}), text("done")])
    patient.conversation().submit("do it")
    drain()
    assert seen == [{"renewed": True}]


@pytest.mark.parametrize("timeout", [5, timedelta(), timedelta(seconds=-1), "5"])
def test_a_limit_of_a_tool_is_a_time_of_more_than_nothing(timeout):
    with pytest.raises(errors.ConfigError, match="expected `timeout` to be a timedelta of more than 0"):

        @tool(timeout=timeout)
        def wrong() -> None:
            """Nothing."""
