"""Who hears what, in which order, and what stands by then."""

from typing import Any

import pytest
from django.db import transaction

from tests.concurrency.threads import observer
from tests.events import recording
from tests.events.recording import NOTE, heard, types
from tests.testapp.agents import safe, unsafe
from turnkit_django import Agent, register
from turnkit_django.agents import registry
from turnkit_django.core.events import Event
from turnkit_django.errors import ConfigError, InputError
from turnkit_django.models import Turn
from turnkit_django.testing import assert_clean, call, drain, text

pytestmark = pytest.mark.django_db(transaction=True)

STEP = ["model.requested", "model.completed", "message.created"]
TOOL_TURN = [
    "message.created",
    "turn.started",
    *STEP,
    "tool_call.created",
    "tool_call.started",
    "tool_call.completed",
    "message.created",
    *STEP,
    "turn.completed",
]
STATES = {
    "turn.started": ("turnkit_turn", "running"),
    "turn.completed": ("turnkit_turn", "completed"),
    "tool_call.started": ("turnkit_toolexecution", "running"),
    "tool_call.completed": ("turnkit_toolexecution", "completed"),
}


@pytest.fixture
def agent_heard(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """What the agent's receiver hears of the turns of agent `told`."""
    monkeypatch.setattr(registry, "_agents", dict(registry.registered()))
    found: list[Event] = []
    register(Agent(name="told", model="openai/gpt-5-mini", tools=[safe, unsafe], on_event=[found.append]))
    return found


@pytest.fixture
def project_heard(settings: Any) -> list[Event]:
    settings.TURNKIT = {"ON_EVENT": NOTE}
    recording.project.clear()
    return recording.project


def agent() -> Agent:
    return registry.get_agent("told")


@pytest.mark.parametrize("name", ["safe", "unsafe"])
def test_a_tool_turn_is_told_in_order_at_every_level(turnkit_model, agent_heard, project_heard, name):
    turnkit_model([call(name, {"n": 1}), text("done")])
    turn_heard: list[Event] = []
    conversation = agent().conversation()
    with heard() as signals_heard:
        turn = conversation.ask("please", on_event=turn_heard.append)

    assert types(turn_heard) == TOOL_TURN
    assert turn_heard == agent_heard == project_heard == signals_heard
    assert {(event.turn_id, event.conversation_id, event.agent_name) for event in turn_heard} == {
        (turn.pk, conversation.pk, "told")
    }
    times = [event.at for event in turn_heard]
    assert times == sorted(times)
    assert all(at.tzinfo is not None for at in times)


def test_what_an_event_tells_stands_in_the_database_for_everybody(turnkit_model, agent_heard):
    turnkit_model([call("safe", {"n": 1}), text("done")])
    seen = []
    with observer() as watching:

        def look(event: Event) -> None:
            if event.type == "message.created":
                sql, key = "SELECT role FROM turnkit_message WHERE id = %s", event.message_id
                assert watching.execute(sql, [key]).fetchone() == (event.role,)
            elif event.type in STATES:
                table, state = STATES[event.type]
                key = getattr(event, "execution_id", event.turn_id)
                found = watching.execute(f"SELECT status FROM {table} WHERE id = %s", [key]).fetchone()
                assert found == (state,), event
            seen.append(event.type)

        agent().conversation().ask("please", on_event=look)

    assert seen == TOOL_TURN


def test_a_submitted_turn_is_told_where_it_happens(turnkit_model, agent_heard, project_heard):
    model = turnkit_model([text("done")])
    turn = agent().conversation().submit("please")
    assert types(agent_heard) == ["message.created", "turn.submitted"]
    turn.submit()
    assert len(agent_heard) == 2
    drain()
    assert types(agent_heard)[2:] == ["turn.started", *STEP, "turn.completed"]
    assert project_heard == agent_heard
    assert_clean(model=model)


def test_a_plain_turn_tells_sizes_and_counts(turnkit_model, agent_heard):
    turnkit_model([text("four")])
    turn = agent().run("please").turn
    by_type = {event.type: event for event in agent_heard}
    asked, answered, ended = by_type["model.requested"], by_type["model.completed"], by_type["turn.completed"]

    assert (asked.prompt_chars, asked.message_count, asked.iteration) == (len("please"), 1, 1)
    assert asked.tool_names == ("safe", "unsafe")
    assert (answered.usage.input_tokens, answered.tool_call_count, answered.finish_reason) == (100, 0, "stop")
    assert asked.request_id == answered.request_id == turn.request_id
    assert (ended.output_chars, ended.usage, ended.cost) == (4, turn.usage, turn.cost)
    assert not any("please" in str(event.as_dict()) or "four" in str(event.as_dict()) for event in agent_heard)


def test_a_prepared_turn_is_followed_while_the_run_is_held(turnkit_model, agent_heard):
    turnkit_model([text("done")])
    found: list[Event] = []
    run = agent().prepare("please", on_event=found.append)
    run.refresh().run()
    assert types(found) == ["message.created", "turn.started", *STEP, "turn.completed"]

    run = agent().prepare("please", on_event=found.append)
    turn_id = run.id
    del run
    Turn.objects.get(pk=turn_id).cancel()
    assert types(found).count("turn.cancelled") == 0
    assert types(agent_heard).count("turn.cancelled") == 1


def test_a_callable_cannot_follow_a_turn_into_a_worker(agent_heard):
    conversation = agent().conversation()
    with pytest.raises(InputError, match="expected no `on_event` for a turn that is submitted: a worker"):
        conversation.submit("please", on_event=print)
    prepared = conversation.prepare("please", on_event=print)
    with pytest.raises(InputError, match="was prepared with `on_event`, so it cannot be submitted"):
        prepared.submit()
    assert Turn.objects.get().submitted_at is None


@pytest.mark.parametrize("wrong", ["a.path", 3, Event])
def test_what_cannot_be_called_with_an_event_is_refused(wrong, agent_heard):
    async def nobody_awaits(event: Event) -> None: ...

    for value in (wrong, nobody_awaits):
        with pytest.raises(InputError, match="expected `on_event` to be a"):
            agent().conversation().ask("please", on_event=value)
        with pytest.raises(ConfigError, match="agent `odd`: expected `on_event` to be a"):
            Agent(name="odd", on_event=[value])
    assert Turn.objects.count() == 0


def test_events_in_the_applications_transaction_leave_after_its_commit(agent_heard):
    conversation = agent().conversation()
    with transaction.atomic():
        conversation.submit("please")
        with transaction.atomic():
            conversation.say("and this")
        assert agent_heard == []
    assert types(agent_heard) == ["message.created", "turn.submitted", "message.created"]
    assert agent_heard[2].turn_id is None


def test_what_is_rolled_back_is_not_told(agent_heard):
    conversation = agent().conversation()
    with transaction.atomic():
        conversation.submit("please")
        transaction.set_rollback(True)
    with transaction.atomic():
        with transaction.atomic():
            conversation.submit("please")
            transaction.set_rollback(True)
        conversation.say("this stays")
    assert (types(agent_heard), Turn.objects.count()) == (["message.created"], 0)
