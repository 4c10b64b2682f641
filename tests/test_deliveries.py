"""The verbs: what they refuse, what they join, and what they tell."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from tests.testapp.agents import helper
from turnkit_django.errors import InputError, StateError
from turnkit_django.models import Conversation, Delivery, Turn
from turnkit_django.testing import ScriptedModel, assert_clean, drain, text

pytestmark = pytest.mark.django_db


@pytest.fixture
def conversation() -> Conversation:
    return helper.conversation()


@pytest.mark.parametrize(
    ("key", "got"), [("", "''"), (" ", "' '"), (3, r"3 \(int\)"), (None, "None"), ("k" * 256, "a text of 256")]
)
def test_a_message_needs_a_key(conversation: Conversation, key: Any, got: str):
    expected = f"{conversation.pk}: expected `key` to be a text of 1 to 255 characters that is not blank, got {got}"
    with pytest.raises(InputError, match=expected):
        conversation.post("hello", key=key)
    assert Delivery.objects.count() == 0


@pytest.mark.parametrize("words", ["", " ", None])
def test_a_message_needs_a_text(conversation: Conversation, words: Any):
    with pytest.raises(InputError, match="expected the message to be a text that is not blank"):
        conversation.post(words, key="k")


@pytest.mark.parametrize("destination", [None, "conv_1", Conversation(agent_name="helper")])
def test_a_message_needs_a_saved_destination(conversation: Conversation, destination: Any):
    with pytest.raises(InputError, match="expected `destination` to be a saved Conversation, got "):
        conversation.send(destination, "hello", key="k")


def test_a_destination_that_was_deleted_is_named(conversation: Conversation):
    gone, same = helper.conversation(), helper.conversation()
    Conversation.objects.filter(pk=gone.pk).delete()
    with pytest.raises(InputError, match=f"`destination` to be a saved Conversation: {gone.pk} is not in the database"):
        conversation.send(gone, "hello", key="k")
    Conversation.objects.filter(pk=same.pk).delete()
    with pytest.raises(Conversation.DoesNotExist, match=f"{same.pk} is not in the database"):
        same.send(conversation, "hello", key="k")


def test_a_principal_is_json(conversation: Conversation):
    with pytest.raises(InputError, match="expected `principal` to be JSON"):
        conversation.post("hello", key="k", principal=object())  # type: ignore[arg-type]


def test_what_postgresql_cannot_hold_is_replaced_and_the_repeat_is_known(conversation: Conversation):
    sent = conversation.post("a\x00b", key="k\x00")

    assert (sent.text, sent.key) == ("a\ufffdb", "k\ufffd")
    assert conversation.post("a\x00b", key="k\x00") == sent


def test_inbox_and_outbox_show_the_one_row(conversation: Conversation, turnkit_model: Callable[[Any], ScriptedModel]):
    model = turnkit_model([text("read it")])
    other = helper.conversation()
    sent = conversation.send(other, "hello", key="k")
    assert drain() == 1

    (row,) = other.inbox.all()
    assert (row, list(conversation.outbox.all()), row.delivered_at is not None) == (sent, [sent], True)
    assert (conversation.inbox.count(), other.outbox.count()) == (0, 0)
    assert_clean(model=model)


def test_a_message_commits_or_rolls_back_with_the_applications_transaction(conversation: Conversation):
    with transaction.atomic():
        conversation.post("one", key="1")
        transaction.set_rollback(True)
    with transaction.atomic():
        conversation.post("two", key="2")

    assert list(Delivery.objects.values_list("text", flat=True)) == ["two"]


def test_the_status_of_an_input_is_pending_until_a_request_includes_it(
    conversation: Conversation, turnkit_model: Callable[[Any], ScriptedModel]
):
    model = turnkit_model([text("read it")])
    sent = conversation.post("hello", key="k")
    before = conversation.input_status(sent)
    drain()
    after = conversation.input_status(sent)

    assert (before.status, before.turn_id, before.request_id) == ("pending", None, None)
    turn = Turn.objects.get()
    assert (after.status, after.turn_id, after.delivery.delivered_at is not None) == ("applied", turn.pk, True)
    assert [after.request_id] == [request.metadata["request_id"] for request in model.requests]


def test_the_inbox_of_another_conversation_is_not_told(conversation: Conversation):
    sent = conversation.post("hello", key="k")
    other = helper.conversation()

    with pytest.raises(InputError, match=f"expected a delivery in the inbox of {other.pk}, got "):
        other.input_status(sent)


def test_a_delivery_that_was_erased_has_no_status(conversation: Conversation):
    sent = conversation.post("hello", key="k")
    Delivery.objects.all().delete()

    with pytest.raises(Delivery.DoesNotExist, match=f"{sent.pk} is not in the database"):
        conversation.input_status(sent)


# Callbacks


SUBMISSIONS: dict[str, Callable[[Conversation, Any], Turn]] = {
    "conversation": lambda lane, callback: lane.submit("please", callback=callback),
    "turn": lambda lane, callback: lane.prepare("please").submit(callback=callback),
    "agent": lambda lane, callback: helper.submit("please", callback=callback).turn,
    "run": lambda lane, callback: helper.prepare("please").submit(callback=callback).turn,
}


@pytest.mark.parametrize("how", SUBMISSIONS)
def test_a_callback_is_asked_for_wherever_work_is_submitted(
    conversation: Conversation, turnkit_model: Callable[[Any], ScriptedModel], how: str
):
    model = turnkit_model([text("the answer"), text("thank you")])
    asker = helper.conversation()

    turn = SUBMISSIONS[how](conversation, asker)
    assert drain() == 2

    (told,) = asker.inbox.all()
    assert (told.source_turn, told.key) == (turn, f"completion:{turn.pk}")
    assert '"result": "the answer"' in asker.messages.get(sequence=1).text
    assert asker.turns.get().output_text == "thank you"
    assert_clean(model=model)


@pytest.mark.parametrize("how", SUBMISSIONS)
@pytest.mark.parametrize("callback", ["conv_1", Conversation(agent_name="helper")])
def test_a_callback_is_a_saved_conversation_and_a_refusal_leaves_nothing_submitted(
    conversation: Conversation, how: str, callback: Any
):
    with pytest.raises(InputError, match="expected `callback` to be a saved Conversation"):
        SUBMISSIONS[how](conversation, callback)
    assert not Turn.objects.filter(submitted_at__isnull=False).exists()


def test_a_turn_that_is_submitted_again_keeps_its_callback(conversation: Conversation):
    first, second = helper.conversation(), helper.conversation()
    turn = conversation.submit("please", key="k", callback=first)

    turn.submit()
    turn.submit(callback=first)
    conversation.submit("please", key="k")
    conversation.submit("please", key="k", callback=first)
    expected = f"{turn.pk} was started with callback {first.pk}, which stays; it cannot get {second.pk}"
    with pytest.raises(StateError, match=expected):
        turn.submit(callback=second)
    with pytest.raises(StateError, match=expected):
        conversation.submit("please", key="k", callback=second)
    assert Turn.objects.get().callback == first


def test_a_turn_that_was_submitted_without_a_callback_gets_none_later(conversation: Conversation):
    turn = conversation.submit("please")

    with pytest.raises(StateError, match=f"{turn.pk} was started without a callback"):
        turn.submit(callback=conversation)


def test_a_turn_that_was_prepared_under_the_key_gets_its_callback_at_the_submission(conversation: Conversation):
    turn = conversation.prepare("please", key="k")

    assert conversation.submit("please", key="k", callback=conversation) == turn
    assert Turn.objects.get().callback == conversation


def test_an_inline_turn_has_no_callback(conversation: Conversation, turnkit_model: Callable[[Any], ScriptedModel]):
    turnkit_model([text("done")])
    conversation.ask("please", key="k")

    with pytest.raises(StateError, match="was started without a callback"):
        conversation.submit("please", key="k", callback=conversation)
    with pytest.raises(InputError, match=r"unknown turn options \['callback'\]"):
        conversation.ask("please", callback=conversation)
