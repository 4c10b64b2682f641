"""What the loop does with tools, models, limits and crashes, inline and in the background."""

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.testapp.models import Effect
from turnkit_django import Agent, Tool, ToolContext, register, tool
from turnkit_django.agents import registry
from turnkit_django.engine import drain as engine_drain
from turnkit_django.engine import reconcile
from turnkit_django.errors import StateError, ToolError
from turnkit_django.models import Conversation, Turn
from turnkit_django.models.querysets import ClockTime
from turnkit_django.testing import assert_clean, call, drain, text

Start = Callable[[Conversation], Turn]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class UnspeakableToolError(Unspeakable, ToolError):
    """A tool error without a text."""


RAISED: dict[str, BaseException] = {
    "error": FileNotFoundError("no such file"),
    "exit": SystemExit(0),
    "cancelled": asyncio.CancelledError(),
    "generator": GeneratorExit(),
    "unspeakable": Unspeakable(),
    "unspeakable tool error": UnspeakableToolError(),
    "stop": StopIteration("end"),
    "interrupt": KeyboardInterrupt(),
    "group": BaseExceptionGroup("both", [SystemExit(1), ValueError("x")]),
}


@tool
def fail(how: str) -> None:
    """Raise."""
    raise RAISED[how]


@tool
async def later(how: str = "") -> dict[str, str]:
    """Answer, or raise, after a while."""
    await asyncio.sleep(0)
    if how:
        raise RAISED[how]
    return {"error": "is only a word here"}


@tool(recovery="replay_safe")
def safe(n: int = 0, *, context: ToolContext) -> dict[str, object]:
    """Have an effect for each key."""
    Effect.objects.create(name="safe", key=context.idempotency_key, n=n)
    return {"n": n}


@tool
def unsafe(n: int = 0, *, context: ToolContext) -> dict[str, object]:
    """Have an effect."""
    Effect.objects.create(name="unsafe", key=context.idempotency_key, n=n)
    return {"n": n}


@tool(terminal=True)
def finish(words: str = "") -> dict[str, str]:
    """End the turn."""
    if not words:
        raise ToolError("say something")
    return {"result": words}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_agents", dict(registry._agents))


def agent(*more: Any, **options: Any) -> Agent:
    tools = [fail, later, safe, unsafe, finish, *more]
    return register(Agent(name="probe", model="openai/gpt-5-mini", tools=tools, **options))


def inline(conversation: Conversation) -> Turn:
    return conversation.ask("please")


def background(conversation: Conversation) -> Turn:
    turn = conversation.submit("please")
    drain()
    turn.refresh_from_db()
    return turn


def outcomes(turn: Turn) -> list[str]:
    rows = turn.tool_executions.order_by("ordinal")
    return [f"{row.status} {row.error['type']}" if row.error else row.status for row in rows]


def told(turn: Turn) -> list[str]:
    rows = turn.messages.filter(role="tool").order_by("tool_execution__ordinal")
    return [message.content[0]["text"] for message in rows]


def ended(turn: Turn) -> tuple[str, str, str]:
    return turn.status, turn.output_text, (turn.error or {}).get("type", "")


anywhere = pytest.mark.parametrize("start", [inline, background])
pytestmark = pytest.mark.django_db


# Turns


@anywhere
def test_a_plain_turn_completes_with_the_text_of_the_model(turnkit_model, start: Start):
    model = turnkit_model([text(" hi \n")])
    turn = start(agent().conversation())
    assert (*ended(turn), turn.usage.total_tokens, turn.iterations) == ("completed", "hi", "", 120, 1)
    assert [list(request.messages) for request in model.requests] == [[{"role": "user", "content": "please"}]]
    assert_clean(model=model)


def test_each_of_two_prepared_turns_sees_what_stood_there_when_it_was_made(turnkit_model):
    model = turnkit_model([text("2!"), text("1!")])
    conversation = agent().conversation()
    first, second = conversation.prepare("1?"), conversation.prepare("2?")
    second.run()
    first.run()
    assert [[each["content"] for each in request.messages] for request in model.requests] == [["1?", "2?"], ["1?"]]
    assert_clean(model=model)


def test_thinking_of_the_turn_goes_before_the_agents_and_none_switches_it_off(turnkit_model):
    model = turnkit_model([])
    conversation = agent(thinking={"effort": "low"}).conversation()
    for options in ({}, {"thinking": {"effort": "high"}}, {"thinking": None}):
        conversation.ask("please", **options)
    assert [request.thinking for request in model.requests] == [{"effort": "low"}, {"effort": "high"}, None]
    assert_clean(model=model)


# Tools


@anywhere
@pytest.mark.parametrize("name", ["fail", "later"])
@pytest.mark.parametrize("how", sorted(set(RAISED) - {"interrupt", "stop", "generator"}))
def test_whatever_a_tool_raises_is_its_own_failure_and_the_turn_goes_on(turnkit_model, start: Start, name, how):
    model = turnkit_model([call(name, {"how": how}), text("recovered")])
    turn = start(agent().conversation())
    kind = type(RAISED[how]).__name__
    assert (ended(turn), outcomes(turn)) == (("completed", "recovered", ""), [f"failed {kind}"])
    assert "Traceback" not in told(turn)[0]
    assert_clean(model=model)


@pytest.mark.parametrize("how", ["stop", "generator"])
def test_exceptions_that_steer_generators_are_failures_too(turnkit_model, how):
    model = turnkit_model([call("fail", {"how": how}), text("recovered")])
    turn = inline(agent().conversation())
    assert (turn.status, outcomes(turn)) == ("completed", [f"failed {type(RAISED[how]).__name__}"])
    assert_clean(model=model)


def test_people_can_read_the_traceback_and_the_model_cannot(turnkit_model):
    turnkit_model([call("fail", {"how": "error"}), text("ok")])
    turn = inline(agent().conversation())
    execution = turn.tool_executions.get()
    assert "raise RAISED[how]" in execution.error["details"]["traceback"]
    assert told(turn) == ['{"error": "FileNotFoundError: no such file"}']


@anywhere
def test_an_async_tool_runs_and_an_error_key_in_its_result_is_no_error(turnkit_model, start: Start):
    model = turnkit_model([call("later"), text("ok")])
    turn = start(agent().conversation())
    assert (outcomes(turn), told(turn)) == (["completed"], ['{"error": "is only a word here"}'])
    assert_clean(model=model)


def test_ctrl_c_in_a_tool_ends_an_inline_turn_and_goes_on_to_its_caller(turnkit_model):
    model = turnkit_model([[call("fail", {"how": "interrupt"}), call("safe")]])
    conversation = agent().conversation()
    with pytest.raises(KeyboardInterrupt):
        conversation.ask("please")
    turn = conversation.turns.get()
    assert (ended(turn), outcomes(turn)) == (
        ("failed", "", "WorkerStopped"),
        ["interrupted Interrupted", "cancelled Cancelled"],
    )
    assert_clean(model=model)


def test_ctrl_c_in_a_tool_gives_a_background_turn_to_another_worker(turnkit_model):
    model = turnkit_model([[call("fail", {"how": "interrupt"}), call("safe")], text("recovered")])
    turn = agent().conversation().submit("please")
    with pytest.raises(KeyboardInterrupt):
        drain()
    turn.refresh_from_db()
    assert (turn.status, turn.attempts, turn.claim_token) == ("pending", 0, None)
    drain()
    turn.refresh_from_db()
    assert (ended(turn), outcomes(turn)) == (
        ("completed", "recovered", ""),
        ["interrupted Interrupted", "completed"],
    )
    assert_clean(model=model)


@anywhere
def test_a_terminal_tool_ends_the_turn_and_its_later_siblings_do_not_run(turnkit_model, start: Start):
    model = turnkit_model([[call("safe"), call("finish", {"words": "bye"}), call("unsafe"), call("finish")]])
    turn = start(agent().conversation())
    assert (ended(turn), outcomes(turn)) == (
        ("completed", "bye", ""),
        ["completed", "completed", "cancelled Skipped", "cancelled Skipped"],
    )
    assert (len(model.requests), Effect.objects.count(), len(told(turn))) == (1, 1, 4)
    assert_clean(model=model)


@anywhere
def test_a_terminal_tool_that_fails_ends_nothing(turnkit_model, start: Start):
    model = turnkit_model([[call("finish"), call("safe")], text("ok")])
    turn = start(agent().conversation())
    assert (ended(turn), outcomes(turn)) == (("completed", "ok", ""), ["failed ToolError", "completed"])
    assert_clean(model=model)


@anywhere
@pytest.mark.parametrize(("said", "stored"), [("a\x00\ud800", "a\ufffd\ufffd"), ("", "")])
def test_a_completion_text_is_cleaned_before_it_is_stored(turnkit_model, start: Start, said: str, stored: str):
    class Report(Tool):
        """Report."""

        name, terminal = "report", True

        def call(self) -> None:
            """Report."""

        def completion(self, result: object) -> str:
            return said

    model = turnkit_model([call("report")])
    turn = start(agent(Report).conversation())
    assert ended(turn) == ("completed", stored, "")
    assert_clean(model=model)


def test_a_tool_may_use_its_own_conversation_while_it_runs(turnkit_model):
    @tool
    def meddle(*, context: ToolContext) -> str:
        """Say, submit, and try to ask."""
        context.conversation.say("said by a tool")
        context.conversation.submit("more work")
        try:
            context.conversation.ask("now!")
        except StateError as busy:
            return type(busy).__name__
        return "asked"

    model = turnkit_model([[call("meddle"), call("safe")], text("first"), text("second")])
    turn = agent(meddle).conversation().ask("please")
    assert told(turn)[0] == '{"result": "LaneBusy"}'
    assert drain() == 1
    assert [each.output_text for each in Turn.objects.order_by("pk")] == ["first", "second"]
    assert_clean(model=model)


# Limits


@anywhere
@pytest.mark.parametrize("limit", [0, 1, 3])
def test_the_limit_of_model_calls_is_exact_and_every_call_has_a_result(turnkit_model, start: Start, limit: int):
    model = turnkit_model([call("fail", {"how": "error"})] * 9)
    conversation = agent(max_iterations=limit).conversation()
    turn = start(conversation)
    assert (ended(turn), turn.error["message"]) == (
        ("failed", "", "BudgetError"),
        f"maximum iterations reached ({limit})",
    )
    assert (len(model.requests), turn.iterations, len(told(turn))) == (limit, limit, limit)
    assert_clean(model=model)


@anywhere
def test_a_turn_whose_time_is_over_calls_nothing(turnkit_model, start: Start):
    model = turnkit_model([])
    turn = start(agent(timeout=timedelta(microseconds=1)).conversation())
    assert (ended(turn), turn.error["message"]) == (("failed", "", "BudgetError"), "turn timed out")
    assert (len(model.requests), turn.iterations) == (0, 0)
    assert_clean(model=model)


@anywhere
def test_a_deadline_that_passes_in_a_tool_stops_the_turn_after_it(turnkit_model, start: Start):
    @tool
    def slow() -> str:
        """Take longer than the turn may."""
        threading.Event().wait(2.1)
        return "late"

    model = turnkit_model([[call("slow"), call("safe")]])
    turn = start(agent(slow, timeout=timedelta(seconds=2)).conversation())
    assert (ended(turn), outcomes(turn)) == (("failed", "", "BudgetError"), ["completed", "cancelled Cancelled"])
    assert_clean(model=model)


@pytest.mark.parametrize("status", ["pending", "waiting"])
def test_maintenance_ends_turns_whose_deadline_passed_while_nobody_held_them(turnkit_model, status: str):
    model = turnkit_model([{"error": {"status": 429, "retry_after": 900}}])
    turn = agent(timeout=3600).conversation().submit("please")
    if status == "waiting":
        drain(max_seconds=0)
    assert Turn.objects.filter(pk=turn.pk, status=status).update(deadline_at=ClockTime() - timedelta(seconds=1)) == 1
    assert reconcile.run_pass(batch=10).overdue == 1
    turn.refresh_from_db()
    assert (ended(turn), turn.error["message"]) == (("failed", "", "BudgetError"), "turn timed out")
    assert_clean(model=model)


def test_a_worker_that_claims_an_overdue_turn_ends_it(turnkit_model):
    model = turnkit_model([])
    turn = agent(timeout=3600).conversation().submit("please")
    Turn.objects.update(deadline_at=ClockTime() - timedelta(seconds=1))
    engine_drain.run_due()
    turn.refresh_from_db()
    assert (ended(turn), len(model.requests)) == (("failed", "", "BudgetError"), 0)
    assert_clean(model=model)
