"""Verbs that steer turns from outside."""

import threading
from typing import Any

import pytest
from django.db import connections

from tests.test_conversations import parked, recovered, running, submitted
from tests.testapp.agents import helper
from turnkit_django.models import Turn
from turnkit_django.testing import Crash, assert_clean, call, crash_at, text

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("occupy", [submitted, parked, recovered, running])
def test_a_turn_is_cancelled_whatever_it_waits_for_and_frees_the_lane(turnkit_model, occupy):
    turnkit_model([text("next")])
    conversation = helper.conversation()
    turn = occupy(conversation).cancel()
    assert (turn.status, turn.error["type"], turn.claim_token) == ("cancelled", "Cancelled", None)
    assert turn.cancel().completed_at == turn.completed_at
    assert conversation.ask("go on").output_text == "next"
    assert_clean()


def test_an_ended_turn_stays_as_it_ended(turnkit_model):
    turnkit_model([text("hi")])
    run = helper.run("please").cancel()
    assert (run.status, run.output_text, run.error) == ("completed", "hi", None)


def test_cancelling_closes_a_running_and_a_pending_call_with_different_texts(turnkit_model):
    model = turnkit_model([[call("unsafe", {"n": 1}), call("unsafe", {"n": 2})], text("4")])
    conversation = helper.conversation()
    with crash_at("tool_started"), pytest.raises(Crash):
        conversation.ask("please")
    turn = conversation.turns.get().cancel()
    first, second = turn.messages.filter(role="tool").order_by("tool_execution__ordinal")
    assert "cancelled while this tool ran. Whether it took effect is unknown" in first.content[0]["text"]
    assert "cancelled before this tool was started: it did not run" in second.content[0]["text"]
    assert conversation.ask("never mind, what is 2+2?").output_text == "4"
    assert [message["role"] for message in model.requests[1].messages] == ["user", "assistant", "tool", "tool", "user"]
    assert_clean(model=model)


@pytest.mark.django_db(transaction=True)
def test_a_turn_that_runs_elsewhere_is_cancelled_and_its_late_answer_is_dropped(turnkit_model):
    asked, cancelled = threading.Event(), threading.Event()

    def slow(request: Any) -> Any:
        asked.set()
        assert cancelled.wait(20)
        return text("too late")

    turnkit_model([slow])
    conversation = helper.conversation()
    ended: list[Turn] = []

    def ask() -> None:
        ended.append(conversation.ask("please"))
        connections.close_all()

    thread = threading.Thread(target=ask)
    thread.start()
    assert asked.wait(20)
    conversation.turns.get().cancel()
    cancelled.set()
    thread.join(20)
    assert [(turn.status, turn.output_text, turn.unknown_attempts) for turn in ended] == [("cancelled", "", 1)]
    assert conversation.messages.count() == 1
    assert_clean()
