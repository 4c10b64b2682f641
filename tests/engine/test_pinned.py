"""Promises of the engine that nothing else in the suite would miss."""

import json
import threading
from typing import Any

import pytest
from django.db import connection
from django.db.models import F

from tests.testapp.agents import helper
from turnkit_django import Agent, ToolContext, jobs, register, tool
from turnkit_django.agents import registry
from turnkit_django.clients.chat import request_body
from turnkit_django.engine import heartbeat, reconcile, runner
from turnkit_django.models import Message, ToolExecution, Turn
from turnkit_django.testing import Crash, assert_clean, call, crash_at, drain, raw, text

pytestmark = pytest.mark.django_db(transaction=True)

held_connections: dict[str, bool] = {}
contexts: list[ToolContext] = []

SIGNED = {
    "role": "assistant",
    "content": "I look it up.",
    "reasoning_content": "first, look",
    "thinking_blocks": [{"type": "thinking", "thinking": "first, look", "signature": "c2lnbmVk+/="}],
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "safe", "arguments": '{"n": 1}'},
            "provider_specific_fields": {"thought_signature": "dGhvdWdodA=="},
        }
    ],
}


def note_connection(where: str) -> None:
    held_connections[where] = connection.connection is not None


@tool(recovery="replay_safe")
def look_safe() -> str:
    """Note whether a connection is held."""
    note_connection("safe")
    return "seen"


@tool
def look_unknown() -> str:
    """Note whether a connection is held."""
    note_connection("unknown")
    return "seen"


@tool
def look_at_context(*, context: ToolContext) -> str:
    """Keep the context."""
    contexts.append(context)
    return "seen"


@pytest.fixture
def looker(monkeypatch: pytest.MonkeyPatch) -> Agent:
    monkeypatch.setattr(registry, "_agents", dict(registry.registered()))
    held_connections.clear()
    contexts.clear()
    return register(Agent(name="looker", model="openai/gpt-5-mini", tools=[look_safe, look_unknown, look_at_context]))


def expire_leases() -> None:
    Turn.objects.filter(status="running").update(lease_expires_at=F("claimed_at"))


@pytest.mark.parametrize(("point", "requests"), [("reserved", 1), ("responded", 2)])
def test_what_a_turn_sees_is_fixed_by_its_first_claim_and_kept_by_the_next(turnkit_model, point, requests):
    model = turnkit_model([text("done")] * requests)
    conversation = helper.conversation()
    turn = conversation.submit("one")
    conversation.say("said before the claim")
    with crash_at(point), pytest.raises(Crash):
        runner.run_next()
    conversation.say("later")
    expire_leases()

    assert reconcile.run_pass(batch=10).recovered == 1
    drain()

    turn.refresh_from_db()
    assert (turn.status, len(model.requests)) == ("completed", requests)
    said = [[message["content"] for message in request.messages] for request in model.requests]
    assert said == [["said before the claim", "one"]] * requests
    assert_clean(model=model)


def test_thinking_and_signed_state_pass_through_the_store_and_back_to_their_provider(turnkit_model):
    model = turnkit_model([raw({"message": SIGNED, "finish_reason": "tool_calls"}), text("done")])
    turn = helper.conversation().submit("please")
    runner.run_next()

    parts = Message.objects.get(turn=turn, kind="tool_call").content
    assert [part["type"] for part in parts] == ["thinking", "text", "tool_call", "provider"]
    assert (parts[0]["text"], parts[3]["kind"]) == ("first, look", "openai")
    assert json.loads(parts[3]["data"])["thinking_blocks"] == SIGNED["thinking_blocks"]

    own, foreign = (_replayed(model, provider) for provider in ("openai", "anthropic"))
    assert own["thinking_blocks"] == SIGNED["thinking_blocks"]
    assert own["tool_calls"][0]["provider_specific_fields"] == {"thought_signature": "dGhvdWdodA=="}
    assert ("thinking_blocks" in foreign, "provider_specific_fields" in foreign["tool_calls"][0]) == (False, False)
    assert_clean(model=model)


def _replayed(model: Any, provider: str) -> dict[str, Any]:
    """The answer of the first request as the second one would tell it to that provider."""
    body = request_body(model.requests[1], provider=provider)
    (replayed,) = [message for message in body["messages"] if message["role"] == "assistant"]
    return replayed


def test_no_connection_is_held_during_a_model_call_or_a_tool(looker, turnkit_model):
    def first(request):
        note_connection("first call")
        return [call("look_safe", {}), call("look_unknown", {}), call("look_safe", {})]

    def second(request):
        note_connection("second call")
        return text("done")

    model = turnkit_model([first, second])
    looker.conversation().submit("please")
    runner.run_next()

    assert held_connections == dict.fromkeys(["first call", "safe", "unknown", "second call"], False)
    assert_clean(model=model)


def test_a_tool_is_told_for_whom_it_runs_and_under_which_key(looker, turnkit_model):
    model = turnkit_model([call("look_at_context", {}), text("done")])
    turn = looker.conversation(principal={"user": 7}).submit("please")
    runner.run_next()

    (context,) = contexts
    execution = ToolExecution.objects.get(turn=turn)
    assert (context.principal, turn.principal) == ({"user": 7}, {"user": 7})
    assert context.idempotency_key == f"turnkit:tool:{execution.pk}"
    assert (context.turn.pk, context.execution.pk) == (turn.pk, execution.pk)
    assert_clean(model=model)


class Stopped(BaseException):
    """Ends the renewer's loop."""


class Recorder:
    """In the place of the event that the renewer waits on: keeps how long, and stops the loop of this thread."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self._thread = threading.get_ident()

    def wait(self, seconds: float) -> None:
        if threading.get_ident() != self._thread:  # a renewer that an earlier test has left
            threading.Event().wait(seconds)
            return
        self.waits.append(seconds)
        raise Stopped


@pytest.mark.parametrize("lease", [30, 90])
def test_the_renewer_comes_three_times_a_lease(monkeypatch, settings, lease):
    settings.TURNKIT = {"LEASE_SECONDS": lease}
    recorder = Recorder()
    monkeypatch.setattr(heartbeat, "_never", recorder)
    with pytest.raises(Stopped):
        heartbeat._renew_for_ever()

    assert recorder.waits == [lease / 3]


def test_the_reconcile_job_takes_over_the_turn_of_a_dead_worker(turnkit_model):
    model = turnkit_model([])
    turn = helper.conversation().submit("please")
    with crash_at("claimed"), pytest.raises(Crash):
        runner.run_next()
    expire_leases()
    jobs.reconcile()

    turn.refresh_from_db()
    assert (turn.status, turn.attempts, turn.claim_token) == ("pending", 1, None)
    assert turn.error["type"] == "WorkerDied"
    assert_clean(model=model)
