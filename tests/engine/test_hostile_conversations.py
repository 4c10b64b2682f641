"""Hostile output that shows itself in later requests of a conversation, or in the rows."""

from typing import Any

import pytest
from django.test import override_settings

from turnkit_django import Agent, ToolContext, register, tool
from turnkit_django.agents import registry
from turnkit_django.testing import assert_clean, call, raw, text

LONG = "functions.search:0" + "x" * 80
FINE = text("fine")
runs: list[object] = []


@tool
def ping(n: int | None = None) -> dict[str, object]:
    """Count."""
    runs.append(n)
    return {"n": n}


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Agent:
    monkeypatch.setattr(registry, "_agents", dict(registry._agents))
    runs.clear()
    return register(Agent(name="probe", model="openai/gpt-5-mini", tools=[ping]))


def spoken(content: str, *, finish: str) -> Any:
    return raw({"finish_reason": finish, "message": {"content": content}})


@pytest.mark.django_db
def test_the_raw_text_of_broken_arguments_stays_readable(probe: Agent, turnkit_model):
    turnkit_model([call("ping", '{"n": 1'), FINE])
    execution = probe.conversation().ask("please").tool_executions.get()
    assert (execution.arguments_text, execution.arguments) == ('{"n": 1', None)


@pytest.mark.django_db
@pytest.mark.parametrize("received", ["", "call_0", LONG])
def test_ids_that_repeat_in_every_turn_do_not_block_the_conversation(probe: Agent, turnkit_model, received: str):
    model = turnkit_model([step for _ in range(4) for step in (call("ping", {}, id=received), FINE)])
    conversation = probe.conversation()
    assert [conversation.ask("again").status for _ in range(4)] == ["completed"] * 4
    assert len(runs) == 4
    assert_clean(model=model)


def sent_ids(messages: Any) -> list[str]:
    return [each["id"] for message in messages for each in message.get("tool_calls", [])]


@pytest.mark.django_db
@override_settings(TURNKIT={"REQUEST_FORMS": {"openai/*": {"call_id_length": 9}}})
def test_made_ids_are_the_same_in_every_request_and_obey_the_models_limit(probe: Agent, turnkit_model):
    model = turnkit_model([*[call("ping", {}, id=each) for each in (LONG, "", "y" * 5000)], FINE, FINE])
    conversation = probe.conversation()
    conversation.ask("one")
    conversation.ask("two")
    sent = [sent_ids(request.messages) for request in model.requests]
    assert all(len(each) == 9 for each in sent[-1])
    assert sent == [sent[-1][: len(each)] for each in sent]
    assert [len(each) for each in sent] == [0, 1, 2, 3, 3]
    assert_clean(model=model)


@pytest.mark.django_db
def test_a_refused_half_answer_is_kept_and_marked_but_not_published(probe: Agent, turnkit_model):
    model = turnkit_model([spoken("Here is how", finish="content_filter")])
    turn = probe.conversation().ask("please")
    message = turn.messages.get(role="assistant")
    assert (message.text, message.metadata["finish_reason"], turn.output_text) == (
        "Here is how",
        "content_filter",
        "",
    )
    assert_clean(model=model)


@pytest.mark.django_db
def test_the_end_of_a_cut_answer_is_marked_and_the_model_is_told(probe: Agent, turnkit_model):
    model = turnkit_model([spoken("half a sen", finish="length"), FINE])
    turn = probe.conversation().ask("please")
    assert turn.messages.get(sequence=2).metadata["finish_reason"] == "length"
    assert "cut off" in (model.requests[1].messages[-1]["content"] or "")
    assert_clean(model=model)


@pytest.mark.django_db
def test_a_tool_may_not_hide_behind_a_context_argument(probe: Agent, turnkit_model):
    seen: list[object] = []

    @tool
    def look(*, context: ToolContext) -> str:
        """Look."""
        seen.append(context.idempotency_key)
        return "seen"

    agent = register(Agent(name="looker", model="openai/gpt-5-mini", tools=[look]))
    model = turnkit_model([call("look", {"context": {"principal": "root"}}), call("look"), FINE])
    turn = agent.conversation().ask("please")
    assert [row.status for row in turn.tool_executions.order_by("ordinal")] == ["failed", "completed"]
    assert seen == [f"turnkit:tool:{turn.tool_executions.get(status='completed').pk}"]
    assert_clean(model=model)


@pytest.mark.django_db
@pytest.mark.parametrize("where", ["an invented call", "a deploy took all tools away"])
def test_a_history_with_calls_comes_with_a_tool_though_the_agent_has_none(probe: Agent, turnkit_model, where: str):
    """E6: V13 holds whatever happened before."""
    model = turnkit_model([call("ping", {}), FINE, call("no_tools", {}), FINE])
    bare = Agent(name="probe", model="openai/gpt-5-mini")
    if where == "an invented call":
        register(bare)
    conversation = probe.conversation()
    first = conversation.ask("please")
    if where != "an invented call":
        registry._agents["probe"] = bare
    second = conversation.ask("again")
    assert (first.status, second.status, second.output_text) == ("completed", "completed", "fine")
    assert second.tool_executions.get().error["type"] == "UnknownTool"
    assert model.requests[-1].tool_names == ["no_tools"]
    assert bare.prepare("new").preview().tools == ()
    assert_clean(model=model)
