"""Two connections and one message: sent once, delivered once, read by one turn."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.concurrency.threads import Held, closing, deadlocks, observer, wide_pool
from tests.testapp.agents import helper
from turnkit_django.engine import drafts, runner
from turnkit_django.engine import drain as draining
from turnkit_django.errors import ToolError
from turnkit_django.models import Conversation, Delivery, Message, Turn
from turnkit_django.store import transitions
from turnkit_django.store.claims import Claim
from turnkit_django.testing import ScriptedModel, assert_clean, drain, text

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def conversation(turnkit_model: Callable[[Any], object]) -> Conversation:
    turnkit_model([text("done")] * 5)
    return helper.conversation()


def deliver(delivery: Delivery) -> Delivery | None:
    return transitions.deliver(delivery.pk, draft=drafts.new_turn(delivery.destination, {}))


def continued(conversation: Conversation) -> Turn | None:
    return transitions.continue_lane(conversation.pk, draft=drafts.new_turn(conversation, {}))


def claimed() -> Claim:
    (one,) = transitions.claim(runner.holder())
    return one.claim


def test_two_who_send_under_one_key_at_once_get_one_row(conversation: Conversation):
    theirs = Held(lambda: conversation.post("hello", key="k")).and_behind_it(
        lambda: conversation.post("hello", key="k")
    )

    assert theirs.result() == Delivery.objects.get()
    assert drain() == 1
    assert_clean()


def test_two_who_send_different_words_under_one_key_at_once_the_second_is_refused(conversation: Conversation):
    theirs = Held(lambda: conversation.post("hello", key="k")).and_behind_it(
        lambda: conversation.post("good bye", key="k")
    )

    with pytest.raises(ToolError, match="key 'k'"):
        theirs.result()
    assert Delivery.objects.get().text == "hello"


def test_two_who_deliver_at_once_append_one_message_and_make_one_turn(conversation: Conversation):
    sent = conversation.post("hello", key="k")

    theirs = Held(lambda: deliver(sent)).and_behind_it(lambda: deliver(sent))

    assert theirs.result() is None
    assert (Message.objects.count(), Turn.objects.count()) == (1, 1)
    assert drain() == 1
    assert_clean()


def test_two_who_continue_a_lane_at_once_make_one_turn(conversation: Conversation):
    transitions.deliver(conversation.post("hello", key="k").pk, draft=None)

    theirs = Held(lambda: continued(conversation)).and_behind_it(lambda: continued(conversation))

    assert theirs.result() is None
    assert Turn.objects.count() == 1


def test_a_continuation_behind_a_submission_leaves_the_message_to_the_submitted_turn(conversation: Conversation):
    transitions.deliver(conversation.post("hello", key="k").pk, draft=None)

    theirs = Held(lambda: conversation.submit("and you?")).and_behind_it(lambda: continued(conversation))

    assert theirs.result() is None
    assert drain() == 1
    assert Delivery.objects.get().receiving_turn == Turn.objects.get()
    assert_clean()


def test_a_delivery_behind_the_end_of_a_turn_brings_the_next_one(conversation: Conversation):
    conversation.submit("first")
    held = claimed()
    sent = conversation.post("hello", key="k")

    theirs = Held(lambda: transitions.complete(held, text="hi", reply=None), point="complete.written").and_behind_it(
        lambda: deliver(sent)
    )

    assert theirs.result() == sent
    assert Turn.objects.filter(status="pending").count() == 1


def test_an_end_behind_a_delivery_sees_the_message(conversation: Conversation):
    conversation.submit("first")
    held = claimed()
    sent = conversation.post("hello", key="k")

    theirs = Held(lambda: deliver(sent)).and_behind_it(lambda: transitions.complete(held, text="hi", reply=None))

    assert theirs.exception() is None
    assert continued(conversation) is not None


def test_many_workers_lose_no_message_and_deliver_none_twice(turnkit_model: Callable[[Any], ScriptedModel]):
    model = turnkit_model(lambda request: text("read it"))
    lanes = [helper.conversation() for _ in range(4)]
    sent = [lane.post(f"message {number}", key=str(number)) for number in range(8) for lane in lanes]

    with wide_pool(8), ThreadPoolExecutor(4) as pool, observer() as watching:
        before = deadlocks(watching)
        for each in [pool.submit(closing(draining.run_all)) for _ in range(4)]:
            each.result(60)
        assert deadlocks(watching) == before
    drain()

    texts = Counter(Message.objects.filter(role="user").values_list("conversation", "content__0__text"))
    assert texts == Counter((delivery.destination_id, delivery.text) for delivery in sent)
    assert not Delivery.objects.filter(request_id="").exists()
    assert not Turn.objects.exclude(status="completed").exists()
    assert_clean(model=model)


def test_two_conversations_that_send_to_each_other_never_deadlock(conversation: Conversation):
    other = helper.conversation()
    with observer() as watching:
        before = deadlocks(watching)
        held = Held(lambda: [conversation.say("I hold it"), conversation.send(other, "hello", key="k")])
        with held.open():
            sent = other.send(conversation, "hello", key="k")
        assert deliver(sent) == sent
        assert deadlocks(watching) == before
    assert drain() == 2
    assert_clean()
