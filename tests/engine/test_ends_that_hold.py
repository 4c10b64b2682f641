"""What a late limit, a failing completion text or a silent cut does to a turn."""

import pytest

from tests.testapp.agents import helper
from turnkit_django import Agent, Tool, ToolContext, register, tool
from turnkit_django.agents import registry
from turnkit_django.testing import assert_clean, call, drain, raw, scripted_model, text


class Broken(Tool):
    """End the turn, and fail to say so."""

    name = "broken"
    terminal = True

    def call(self) -> dict[str, bool]:
        return {"done": True}

    def completion(self, result: object) -> str:
        raise RuntimeError(f"no words for {result}")


@pytest.mark.django_db(transaction=True)
def test_a_completion_text_that_fails_does_not_undo_the_tool(turnkit_model, monkeypatch):
    monkeypatch.setattr(registry, "_agents", dict(registry.registered()))
    agent = register(Agent(name="speechless", tools=[Broken]))
    model = turnkit_model([{"call": ["broken", {}]}])
    turn = agent.conversation().submit("End it")
    drain()
    turn.refresh_from_db()
    assert (turn.status, turn.output_text, turn.attempts) == ("completed", "Completed by broken.", 0)
    assert_clean(model=model)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("content", [None, "half a"])
@pytest.mark.parametrize("finish_reason", ["length", "error"])
def test_a_model_whose_answer_was_cut_is_told_so(turnkit_model, content, finish_reason):
    choice = {"finish_reason": finish_reason, "message": {"role": "assistant", "content": content}}
    model = turnkit_model([raw(choice), text("short")])
    turn = helper.conversation().submit("Hi")
    drain()
    turn.refresh_from_db()
    assert (turn.status, turn.output_text) == ("completed", "short")
    last = model.requests[1].messages[-1]
    assert (last["role"], "cut off" in str(last["content"])) == ("user", True)
    assert_clean(model=model)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([text("hi")], ["turn.completed"]),
        ([{"error": {"status": 401, "message": "no"}}], ["turn.failed"]),
        ([{"error": {"status": 503, "retry_after": 0}}, text("hi")], ["turn.parked", "turn.completed"]),
    ],
)
def test_an_operator_reads_in_the_log_how_a_turn_ended(turnkit_model, caplog, steps, told):
    turnkit_model(steps)
    with caplog.at_level("INFO", logger="turnkit"):
        turn = helper.conversation().submit("Hi")
        drain()
    ends = [record for record in caplog.records if getattr(record, "event", "").startswith("turn.")]
    assert [record.event for record in ends] == told
    assert all(turn.pk in record.getMessage() for record in ends)


@pytest.mark.django_db(transaction=True)
def test_a_script_of_the_form_of_a_json_file_is_read_as_one():
    with scripted_model({"steps": [{"text": "hi"}]}) as model:
        assert helper.conversation().ask("Hi").output_text == "hi"
    assert model.overrun == 0


@pytest.mark.django_db(transaction=True)
def test_a_tool_that_changes_what_it_was_given_changes_nothing_for_the_next(turnkit_model, monkeypatch):
    seen: list[object] = []

    @tool
    def meddle(*, context: ToolContext) -> None:
        """Look at the context, then change it."""
        seen.append(context.turn.context["shop"])
        context.turn.context["shop"] = "another"
        context.turn.status = "failed"

    monkeypatch.setattr(registry, "_agents", dict(registry.registered()))
    agent = register(Agent(name="meddler", tools=[meddle]))
    model = turnkit_model([[call("meddle"), call("meddle")], text("done")])
    turn = agent.conversation(context={"shop": "teapots"}).submit("Go")
    drain()
    turn.refresh_from_db()
    assert (seen, turn.status, turn.context) == (["teapots", "teapots"], "completed", {"shop": "teapots"})
    assert_clean(model=model)


@pytest.mark.django_db(transaction=True)
def test_a_turn_whose_agent_was_changed_goes_on_and_says_so(turnkit_model, monkeypatch, caplog):
    monkeypatch.setattr(registry, "_agents", dict(registry.registered()))
    model = turnkit_model([text("hi")])
    turn = register(Agent(name="changing", version="1")).conversation().submit("Hi")
    before = turn.agent_fingerprint
    changed = register(Agent(name="changing", version="2"))
    with caplog.at_level("WARNING", logger="turnkit"):
        drain()
    turn.refresh_from_db()
    told = [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "agent.changed"]
    assert (turn.status, turn.agent_version, turn.agent_fingerprint) == ("completed", "1", before)
    assert (before != changed.fingerprint, len(told), "version 1" in told[0], "version 2" in told[0]) == (
        (True, 1, True, True)
    )
    assert_clean(model=model)
