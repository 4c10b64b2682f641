"""Every event of the catalogue comes from a real run, has its form, and its line in the log."""

import json
import logging
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from typing import Any

import pytest

from tests.events.recording import assert_told_once, heard, types
from tests.faults.transition_scenarios import SCENARIOS, Scenario
from turnkit_django.core.events import CATALOGUE, DeliveryEvent, Event, MessageCreated
from turnkit_django.models import Message
from turnkit_django.testing import ScriptedModel, call, drain, raw, text

COMMON = {"type", "turn_id", "conversation_id", "agent_name", "at"}
OF_RECORDS = set(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
WARNINGS = {"turn.failed", "turn.stale", "turn.parked", "turn.recovered", "tool_call.interrupted", "delivery.set_aside"}
INFOS = {
    "turn.completed",
    "turn.cancelled",
    "turn.paused",
    "turn.resumed",
    "turn.released",
    "model.failed",
    "tool_call.failed",
}

PUBLIC = {
    "turn.submitted": {"model"},
    "turn.started": {"model", "worker", "is_first"},
    "turn.completed": {"output_chars", "usage", "cost"},
    "turn.failed": {"error_type", "error_message", "usage", "cost"},
    "turn.cancelled": {"usage", "cost"},
    "turn.stale": {"error_type", "error_message", "usage", "cost"},
    "turn.parked": {"error_type", "error_message", "not_before"},
    "turn.pause_requested": set(),
    "turn.paused": set(),
    "turn.resumed": set(),
    "turn.waiting": {"count"},
    "turn.ready": set(),
    "turn.released": {"error_type", "error_message", "not_before"},
    "turn.recovered": {"error_type", "error_message", "attempts", "not_before"},
    "model.requested": {"model", "request_id", "iteration", "message_count", "prompt_chars", "tool_names"},
    "model.completed": {"model", "request_id", "finish_reason", "tool_call_count", "usage", "cost", "seconds"},
    "model.failed": {"model", "request_id", "error_type", "error_message", "is_lost"},
    "message.created": {"message_id", "role", "kind"},
    "tool_call.created": {"execution_id", "tool_name", "arguments_chars"},
    "tool_call.started": {"execution_id", "tool_name"},
    "tool_call.completed": {"execution_id", "tool_name", "result_chars", "seconds"},
    "tool_call.failed": {"execution_id", "tool_name", "error_type", "error_message", "result_chars", "seconds"},
    "sub_agent.delegated": {
        "execution_id",
        "tool_name",
        "child_turn_id",
        "child_conversation_id",
        "child_agent_name",
        "task_chars",
    },
    "tool_call.skipped": {"execution_id", "tool_name", "error_message"},
    "tool_call.interrupted": {"execution_id", "tool_name", "error_message"},
    "delivery.sent": {"delivery_id", "source_id", "destination_id", "text_chars", "hops"},
    "delivery.delivered": {"delivery_id", "source_id", "destination_id", "message_id"},
    "delivery.applied": {"delivery_id", "source_id", "destination_id", "request_id"},
    "delivery.set_aside": {
        "delivery_id",
        "source_id",
        "destination_id",
        "error_type",
        "error_message",
        "not_before",
    },
}
"""The catalogue as users know it."""


def told_by(scenario: Scenario, turnkit_model: Callable[[Any], ScriptedModel], settings: Any) -> list[Event]:
    with heard() as found:
        world = scenario.world(turnkit_model, lambda values: setattr(settings, "TURNKIT", values))
        scenario.act(world)
        drain(max_seconds=10)
    return found


def scenario(name: str) -> Scenario:
    return next(item for item in SCENARIOS if str(item) == name)


def stale(turnkit_model: Callable[[Any], ScriptedModel]) -> None:
    """An inline turn whose process dies, a call that fails, and a refusal with a call that never runs."""
    from tests.testapp.agents import helper
    from turnkit_django.testing import Crash, crash_at

    turnkit_model([text("done")])
    with pytest.raises(Crash), crash_at("responded"):
        helper.conversation().ask("please")
    drain()
    calls = [{"id": "c1", "type": "function", "function": {"name": "safe", "arguments": "{}"}}]
    blocked = {
        "finish_reason": "content_filter",
        "message": {"role": "assistant", "content": None, "tool_calls": calls},
    }
    turnkit_model([call("nothing"), raw(blocked)])
    helper.conversation().ask("please")


@pytest.mark.django_db(transaction=True)
def test_every_event_comes_from_a_real_run_and_tells_what_the_rows_say(turnkit_model, settings, caplog):
    runs = ["store_reply-safe", "cancel-with_a_started_tool", "park", "release", "recover", "give_up", "open_waits"]
    runs += ["deliver", "set_deliveries_aside", "launch", "acknowledge_pause", "resume"]
    caplog.set_level(logging.DEBUG, logger="turnkit")
    found: list[Event] = []
    for name in runs:
        found += told_by(scenario(name), turnkit_model, settings)
    with heard() as more:
        stale(turnkit_model)
    found += more

    assert set(CATALOGUE) == set(types(found))
    assert_told_once(found)
    for event in found:
        told = json.loads(json.dumps(event.as_dict()))
        assert list(told)[:5] == ["type", "turn_id", "conversation_id", "agent_name", "at"]
        assert datetime.fromisoformat(told["at"]) == event.at
        assert event.turn_id is not None or isinstance(event, DeliveryEvent | MessageCreated)
    lines = [record for record in caplog.records if getattr(record, "event", "") in CATALOGUE]
    assert [record.event for record in lines] == types(found)
    for record, event in zip(lines, found, strict=True):
        assert record.levelno == logging.WARNING if event.type in WARNINGS else True
        assert (record.levelno == logging.INFO) == (event.type in INFOS)
        assert {"event": event.type, **{k: v for k, v in event.as_dict().items() if k != "type"}}.items() <= vars(
            record
        ).items()
        named = event.delivery_id if isinstance(event, DeliveryEvent) else str(event.turn_id)
        assert named in record.getMessage()


def test_names_of_events_and_of_what_they_carry_are_frozen():
    found = {kind.type: {item.name for item in fields(kind)} | {"type"} for kind in CATALOGUE.values()}

    assert {name: COMMON | payload for name, payload in PUBLIC.items()} == found


def test_no_field_hides_an_attribute_of_a_log_record():
    names = {item.name for kind in CATALOGUE.values() for item in fields(kind)}

    assert names & OF_RECORDS == set()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("cost", ["0.25", None])
def test_a_message_keeps_the_bill_of_the_call_that_made_it(turnkit_model, settings, cost):
    from tests.testapp.agents import helper

    if cost:
        settings.TURNKIT = {"COST_RATES": {"openai/gpt-5-mini": {"input": "2500", "output": "0"}}}
    turnkit_model([call("safe", {"n": 1}), text("done")])
    with heard() as found:
        turn = helper.conversation().ask("please")
    asked = [event for event in found if event.type == "model.completed"]
    kept = [message.metadata for message in Message.objects.filter(turn=turn, role="assistant").order_by("sequence")]

    assert [set(each) for each in kept] == [{"model", "usage", "cost", "seconds", "request_id"}] * 2
    assert [each["request_id"] for each in kept] == [event.request_id for event in asked]
    assert [each["usage"] for each in kept] == [event.usage.counts() for event in asked]
    assert [each["seconds"] for each in kept] == [event.seconds for event in asked]
    assert {each["model"] for each in kept} == {"openai/gpt-5-mini"}
    assert {each["cost"] for each in kept} == {event.as_dict()["cost"] for event in asked}
