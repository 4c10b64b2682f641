"""Messages between conversations, move by move: stored once, delivered once, read by one turn, and never lost."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from tests.events.recording import heard, types
from tests.testapp.agents import helper
from turnkit_django.core.content import Json
from turnkit_django.core.ids import new_delivery_id
from turnkit_django.engine import deliveries, drafts, reconcile, runner
from turnkit_django.errors import BudgetError, LostClaim, ToolError
from turnkit_django.models import Conversation, Delivery, Message, Turn
from turnkit_django.store import inboxes, transitions
from turnkit_django.store.claims import Claim
from turnkit_django.store.records import AttemptEnd
from turnkit_django.testing import Crash, ScriptedModel, assert_clean, crash_at, drain, text

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("queue")]

WHY: Json = {"type": "Odd", "message": "odd", "details": {}}


def claimed() -> Claim:
    (one,) = transitions.claim(runner.holder())
    return one.claim


def now(delivery: Delivery) -> Delivery:
    return Delivery.objects.get(pk=delivery.pk)


def draft(source: Conversation, destination: Conversation, text: str = "hello", key: str = "k") -> Delivery:
    return Delivery(id=new_delivery_id(), source=source, destination=destination, key=key, text=text)


def unread(conversation: Conversation) -> int:
    conversation.refresh_from_db()
    return conversation.unread_count


def deliver(delivery: Delivery) -> Delivery | None:
    return transitions.deliver(delivery.pk, draft=drafts.new_turn(delivery.destination, {}))


def continued(conversation: Conversation) -> Turn | None:
    return transitions.continue_lane(conversation.pk, draft=drafts.new_turn(conversation, {}))


def test_the_same_message_under_the_same_key_is_one_row_and_one_wake_up(conversation: Conversation, queue: list[str]):
    other = helper.conversation()
    first = conversation.send(other, "hello", key="k", principal={"user": 1})

    assert conversation.send(other, "hello", key="k", principal={"user": 1}) == first
    assert (Delivery.objects.count(), queue) == (1, ["wake"])


@pytest.mark.parametrize("change", ["text", "destination", "principal"])
def test_a_key_of_another_message_is_refused_and_nothing_of_that_message_is_told(
    conversation: Conversation, change: str
):
    first: dict[str, Any] = {"destination": helper.conversation(), "text": "a secret", "principal": "ann"}
    conversation.send(**first, key="k")
    second = {**first, change: {"text": "other", "destination": conversation, "principal": "bob"}[change]}

    with pytest.raises(ToolError, match=f"key 'k' of {conversation.pk} belongs to another message") as refused:
        conversation.send(**second, key="k")
    assert not [word for word in ("secret", "ann", first["destination"].pk) if word in str(refused.value)]
    assert Delivery.objects.count() == 1


def test_a_key_belongs_to_the_conversation_that_sends(conversation: Conversation):
    other = helper.conversation()

    assert conversation.send(other, "hello", key="k") != other.send(conversation, "hello", key="k")


def test_a_delivery_appends_one_message_with_its_origin_and_brings_one_turn(conversation: Conversation):
    other = helper.conversation(principal={"acts": "for itself"})
    sent = conversation.send(other, "hello", key="k", principal={"user": 1})

    assert deliver(sent) == sent
    assert deliver(sent) is None

    delivered, message, turn = now(sent), other.messages.get(), Turn.objects.get()
    assert message.metadata == {
        "delivery_id": sent.pk,
        "principal": {"user": 1},
        "source_conversation_id": conversation.pk,
        "source_turn_id": None,
    }
    assert (message.role, message.text, message.turn_id) == ("user", "hello", None)
    assert (delivered.message, delivered.receiving_turn, delivered.attempts) == (message, turn, 1)
    assert delivered.delivered_at is not None
    assert (turn.conversation, turn.trigger, turn.status, turn.principal) == (
        other,
        message,
        "pending",
        {"acts": "for itself"},
    )
    assert (turn.submitted_at is not None, turn.root_id, turn.hops) == (True, turn.pk, 0)
    assert unread(other) == 1


def test_a_crash_before_the_commit_of_a_delivery_leaves_neither_message_nor_turn(conversation: Conversation):
    sent = conversation.post("hello", key="k")

    with pytest.raises(Crash), crash_at("deliver.written"):
        deliver(sent)

    assert (Message.objects.count(), Turn.objects.count(), now(sent).delivered_at) == (0, 0, None)
    assert unread(conversation) == 0


def test_a_busy_lane_keeps_the_message_and_gets_no_second_turn(conversation: Conversation):
    conversation.submit("first")
    held = claimed()
    sent = conversation.post("meanwhile", key="k")

    assert deliver(sent) == sent

    assert (Turn.objects.count(), unread(conversation), now(sent).receiving_turn) == (1, 1, None)
    assert continued(conversation) is None
    transitions.complete(held, text="hi", reply=None)
    turn = continued(conversation)
    assert turn is not None
    assert (turn.trigger, now(sent).receiving_turn) == (now(sent).message, turn)


def test_submitted_work_that_waits_will_read_the_message_itself(conversation: Conversation):
    waiting = conversation.submit("first")
    sent = conversation.post("meanwhile", key="k")
    deliver(sent)

    held = claimed()

    assert (Turn.objects.count(), unread(conversation)) == (1, 0)
    turn = Turn.objects.get(pk=held.turn_id)
    assert (waiting, turn.request_id) == (now(sent).receiving_turn, now(sent).request_id)


def test_one_turn_reads_all_messages_that_came_meanwhile_and_carries_the_longest_chain(conversation: Conversation):
    conversation.submit("first")
    held = claimed()
    sent = [conversation.post(f"message {number}", key=str(number)) for number in range(3)]
    Delivery.objects.filter(pk=sent[1].pk).update(hops=4)
    assert deliveries.deliver_pending(limit=10).done == 3
    transitions.complete(held, text="hi", reply=None)

    assert deliveries.continue_lanes(limit=10).done == 1
    turn = Turn.objects.get(status="pending")
    assert (turn.trigger, turn.hops) == (now(sent[2]).message, 4)
    assert {turn.pk} == set(Delivery.objects.values_list("receiving_turn", flat=True))
    claimed()
    assert (unread(conversation), Delivery.objects.filter(request_id="").count()) == (0, 0)


def test_a_message_that_comes_between_the_turn_and_its_claim_is_read_by_it_with_its_hops(conversation: Conversation):
    deliver(conversation.post("one", key="1"))
    late = conversation.post("two", key="2")
    Delivery.objects.filter(pk=late.pk).update(hops=7)
    deliver(late)

    held = claimed()

    turn = Turn.objects.get()
    assert (turn.pk, turn.hops, turn.context_sequence) == (held.turn_id, 7, 2)
    assert now(late).request_id == turn.request_id


def test_a_message_behind_the_boundary_of_a_turn_that_goes_on_is_left_for_the_next(conversation: Conversation):
    conversation.submit("first")
    transitions.release(claimed(), error=WHY, seconds=0, attempt=AttemptEnd.UNSENT, is_fault=False)
    sent = conversation.post("meanwhile", key="k")
    deliver(sent)

    claimed()

    assert (unread(conversation), now(sent).request_id) == (1, "")


def test_a_request_that_was_never_sent_has_read_nothing(conversation: Conversation):
    sent = conversation.post("hello", key="k")
    deliver(sent)
    held = claimed()
    before = now(sent).request_id

    transitions.release(held, error=WHY, seconds=0, attempt=AttemptEnd.UNSENT, is_fault=False)

    assert (unread(conversation), now(sent).request_id) == (1, "")
    assert continued(conversation) is None  # its turn goes on
    claimed()
    assert (unread(conversation), now(sent).request_id) == (0, Turn.objects.get().request_id)
    assert now(sent).request_id not in {"", before}


def test_a_turn_that_ends_before_its_first_request_leaves_the_message_to_another(conversation: Conversation):
    sent = conversation.post("hello", key="k")
    deliver(sent)
    transitions.fail(claimed(), error=WHY, attempt=AttemptEnd.UNSENT)

    assert (unread(conversation), now(sent).request_id) == (1, "")
    turn = continued(conversation)
    assert turn is not None
    assert (now(sent).receiving_turn, now(sent).attempts) == (turn, 2)


@pytest.mark.parametrize("attempt", [AttemptEnd.LOST, AttemptEnd.REFUSED])
def test_a_request_that_was_perhaps_sent_has_read_the_message(conversation: Conversation, attempt: AttemptEnd):
    sent = conversation.post("hello", key="k")
    deliver(sent)
    transitions.fail(claimed(), error=WHY, attempt=attempt)

    assert (unread(conversation), now(sent).request_id != "") == (0, True)
    assert continued(conversation) is None


def test_turns_that_end_without_reading_are_made_anew_ever_later_and_then_no_more(
    conversation: Conversation, settings: Any
):
    settings.TURNKIT = {**settings.TURNKIT, "MAX_RECOVERIES": 2}
    sent = conversation.post("hello", key="k")
    deliver(sent)
    delays = []
    with heard() as events:
        for _ in range(3):
            Turn.objects.get(status="pending").cancel()
            delays.append(inboxes.seconds_to_next())
            Delivery.objects.filter(not_before__isnull=False).update(not_before="2000-01-01T00:00Z")
            deliveries.continue_lanes(limit=10)

    assert delays == [None, pytest.approx(1, abs=0.5), pytest.approx(2, abs=0.5)]
    assert (Turn.objects.count(), Turn.objects.filter(status="pending").count()) == (3, 0)
    given_up = now(sent)
    assert (given_up.error["type"], given_up.not_before, given_up.attempts) == ("Unread", None, 3)
    assert "3 turns have ended without reading it" in given_up.error["message"]
    assert [event.not_before for event in events if event.type == "delivery.set_aside"] == [None]
    assert not inboxes.has_work()
    conversation.submit("and now?")
    claimed()
    assert (now(sent).request_id != "", now(sent).error, unread(conversation)) == (True, None, 0)


def test_a_message_that_was_set_aside_waits_its_time(conversation: Conversation):
    sent = conversation.post("hello", key="k")
    with heard() as events:
        transitions.set_deliveries_aside([sent.pk, "dlv_gone"], error=WHY, seconds=60)

    assert (now(sent).error, inboxes.has_work()) == (WHY, False)
    assert inboxes.seconds_to_next() == pytest.approx(60, abs=10)
    assert [(event.error_type, event.conversation_id) for event in events] == [("Odd", conversation.pk)]


def test_what_was_read_meanwhile_is_not_set_aside(conversation: Conversation):
    sent = conversation.post("hello", key="k")
    deliver(sent)
    claimed()

    transitions.set_deliveries_aside([sent.pk], error=WHY, seconds=60)

    assert now(sent).error is None


# A worker that sends


def test_a_turn_sends_under_its_claim_and_keeps_it(conversation: Conversation, queue: list[str]):
    turn, other = conversation.submit("first"), helper.conversation()
    held = claimed()
    queue.clear()

    after, sent = transitions.send_under_claim(held, draft(conversation, other))

    assert (sent.source_turn, sent.hops, after.revision) == (turn, 1, held.revision + 1)
    assert queue == ["wake"]
    again, same = transitions.send_under_claim(after, draft(conversation, other))
    assert same == sent
    transitions.complete(again, text="hi", reply=None)
    assert Delivery.objects.count() == 1


def test_a_ghost_sends_nothing(conversation: Conversation):
    turn = conversation.submit("first")
    held = claimed()
    turn.cancel()

    with pytest.raises(LostClaim):
        transitions.send_under_claim(held, draft(conversation, helper.conversation()))
    assert Delivery.objects.count() == 0


def test_a_refused_message_of_a_turn_leaves_its_claim_as_it_was(conversation: Conversation):
    conversation.submit("first")
    conversation.post("hello", key="k")
    held = claimed()

    with pytest.raises(ToolError):
        transitions.send_under_claim(held, draft(conversation, conversation))
    transitions.complete(held, text="hi", reply=None)


@pytest.mark.parametrize(("limit", "hops", "is_sent"), [(0, 0, False), (3, 2, True), (3, 3, False)])
def test_messages_of_agents_end_at_the_limit_of_hops(
    conversation: Conversation, settings: Any, limit: int, hops: int, is_sent: bool
):
    settings.TURNKIT = {**settings.TURNKIT, "MAX_HOPS": limit}
    turn = conversation.submit("first")
    Turn.objects.filter(pk=turn.pk).update(hops=hops)
    held, message = claimed(), draft(conversation, helper.conversation())

    if is_sent:
        assert transitions.send_under_claim(held, message)[1].hops == hops + 1
    else:
        with pytest.raises(BudgetError, match=f"{hops + 1} messages of agents.*the setting MAX_HOPS allows {limit}"):
            transitions.send_under_claim(held, message)
    assert Delivery.objects.count() == int(is_sent)


def test_the_application_may_send_whatever_the_limit_is(conversation: Conversation, settings: Any):
    settings.TURNKIT = {**settings.TURNKIT, "MAX_HOPS": 0}

    assert conversation.post("hello", key="k").hops == 0


# Callbacks


def ended_by(how: str, turn: Turn) -> None:
    match how:
        case "completed":
            transitions.complete(claimed(), text="the answer", reply=None)
        case "failed":
            transitions.fail(claimed(), error=WHY, attempt=AttemptEnd.UNSENT)
        case "cancelled":
            turn.cancel()
        case "given up":
            transitions.give_up(turn.pk, error=WHY)
        case "its workers died":
            held = claimed()
            reconcile.recover(turn.pk, held.token, 0, is_dead=True)


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("completed", "completed"),
        ("failed", "failed"),
        ("cancelled", "cancelled"),
        ("given up", "failed"),
        ("its workers died", "failed"),
    ],
)
def test_every_end_of_submitted_work_is_told_to_its_callback_in_the_same_commit(
    conversation: Conversation, settings: Any, how: str, status: str
):
    settings.TURNKIT = {**settings.TURNKIT, "MAX_RECOVERIES": 0}
    asker = helper.conversation()
    turn = conversation.submit("first", callback=asker)

    ended_by(how, turn)

    (told,) = asker.inbox.all()
    turn.refresh_from_db()
    assert (told.source, told.source_turn, told.key, told.hops) == (conversation, turn, f"completion:{turn.pk}", 1)
    expected = {"conversation_id": conversation.pk, "turn_id": turn.pk, "status": status, "result": turn.output_text}
    assert json.loads(told.text) == expected | ({"error": turn.error} if turn.error else {})
    assert turn.callback_error is None


def test_a_callback_that_is_refused_is_noted_and_the_end_stands(conversation: Conversation, settings: Any):
    settings.TURNKIT = {**settings.TURNKIT, "MAX_HOPS": 0}
    turn = conversation.submit("first", callback=helper.conversation())

    transitions.complete(claimed(), text="hi", reply=None)

    turn.refresh_from_db()
    assert (turn.status, turn.output_text, Delivery.objects.count()) == ("completed", "hi", 0)
    assert turn.callback_error["type"] == "BudgetError"
    assert "MAX_HOPS allows 0" in turn.callback_error["message"]


def test_a_callback_that_the_database_refuses_is_noted_and_the_end_stands(conversation: Conversation):
    turn = conversation.submit("first", callback=helper.conversation())
    conversation.post("mine", key=f"completion:{turn.pk}")

    turn.cancel()

    turn.refresh_from_db()
    assert (turn.status, turn.callback_error["type"], Delivery.objects.count()) == ("cancelled", "ToolError", 1)


def test_a_callback_that_was_erased_is_told_nothing(conversation: Conversation):
    asker = helper.conversation()
    turn = conversation.submit("first", callback=asker)
    asker.delete()

    transitions.complete(claimed(), text="hi", reply=None)

    turn.refresh_from_db()
    assert (turn.status, turn.callback_error, Delivery.objects.count()) == ("completed", None, 0)


# Wake-ups


def test_the_end_of_a_turn_wakes_somebody_for_the_messages_that_came_meanwhile(
    conversation: Conversation, queue: list[str], turnkit_model: Callable[[Any], ScriptedModel]
):
    def meanwhile(request: Any) -> Any:
        deliver(conversation.post("meanwhile", key="k"))
        queue.clear()
        return text("done")

    turnkit_model([meanwhile, text("read it")])

    conversation.ask("first")

    assert (unread(conversation), queue) == (1, ["wake"])
    assert drain() == 1
    assert unread(conversation) == 0
    assert_clean()


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled", "its workers died"])
def test_every_end_of_a_running_turn_wakes_somebody_for_the_message_that_was_kept(
    conversation: Conversation, queue: list[str], settings: Any, how: str
):
    settings.TURNKIT = {**settings.TURNKIT, "MAX_RECOVERIES": 0}
    lane = helper.conversation(principal={"acts": "for itself"})
    turn = lane.submit("first", principal="somebody else")
    held = claimed()
    deliver(conversation.send(lane, "meanwhile", key="k"))
    queue.clear()

    match how:
        case "completed":
            transitions.complete(held, text="hi", reply=None)
        case "failed":
            transitions.fail(held, error=WHY, attempt=AttemptEnd.UNSENT)
        case "cancelled":
            turn.cancel()
        case _:
            reconcile.recover(turn.pk, held.token, 0, is_dead=True)

    assert queue == ["wake"]
    assert deliveries.look().done
    later = lane.turns.get(status="pending")
    assert (later.trigger.text, later.principal) == ("meanwhile", {"acts": "for itself"})


def test_a_message_that_is_rolled_back_wakes_nobody(conversation: Conversation, queue: list[str]):
    with transaction.atomic():
        conversation.post("hello", key="k")
        assert queue == []
        transaction.set_rollback(True)
    assert (queue, Delivery.objects.count()) == ([], 0)


def test_what_happens_to_a_message_is_told(conversation: Conversation):
    other = helper.conversation()
    with heard() as events:
        sent = conversation.send(other, "hello", key="k")
        deliver(sent)
        (one,) = transitions.claim(runner.holder())
        one.news.send()  # as its holder does

    assert [kind for kind in types(events) if kind.startswith("delivery.")] == [
        "delivery.sent",
        "delivery.delivered",
        "delivery.applied",
    ]
    told = [event for event in events if event.type.startswith("delivery.")]
    assert [event.conversation_id for event in told] == [conversation.pk, other.pk, other.pk]
    assert {(event.delivery_id, event.source_id, event.destination_id) for event in told} == {
        (sent.pk, conversation.pk, other.pk)
    }
