"""What a turn sees depends on places in the lane, not on clocks."""

from datetime import timedelta

import pytest
from django.db.models import F

from tests.testapp.agents import helper
from turnkit_django.engine import runner
from turnkit_django.models import Turn
from turnkit_django.testing import assert_clean, drain, text

pytestmark = pytest.mark.django_db(transaction=True)


def seen(model, number: int) -> list[str]:
    return [str(message["content"]) for message in model.requests[number].messages]


def test_the_answer_before_is_seen_though_a_clock_went_back(turnkit_model):
    model = turnkit_model([text("first answer"), text("second answer")])
    conversation = helper.conversation()
    conversation.submit("one")
    conversation.submit("two")
    runner.run_next()
    Turn.objects.filter(status="completed").update(completed_at=F("completed_at") + timedelta(hours=1))
    runner.run_next()
    assert seen(model, 1) == ["one", "first answer", "two"]
    assert_clean(model=model)


def test_a_later_request_that_was_cancelled_is_not_answered_by_an_earlier_turn(turnkit_model):
    model = turnkit_model([text("answer")])
    conversation = helper.conversation()
    conversation.submit("one")
    conversation.submit("two").cancel()
    drain()
    assert seen(model, 0) == ["one"]
    assert_clean(model=model)


def test_ended_turns_stand_in_lane_order_whenever_they_were_prepared(turnkit_model):
    model = turnkit_model([text("1st"), text("2nd"), text("3rd")])
    conversation = helper.conversation()
    prepared = conversation.prepare("prepared")
    conversation.submit("first")
    drain()
    prepared.run()
    conversation.submit("last")
    drain()
    assert seen(model, 2) == ["first", "1st", "prepared", "2nd", "last"]
    assert_clean(model=model)
