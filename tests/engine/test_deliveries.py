"""Messages from end to end: whatever else happens, each is read, once, by the turn that is next."""

import json
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection

from tests.concurrency.threads import Held
from tests.store.conftest import wakes
from tests.testapp.agents import helper
from turnkit_django import Agent, jobs, register
from turnkit_django.agents import registry
from turnkit_django.core.ids import new_delivery_id
from turnkit_django.core.requests import ModelRequest
from turnkit_django.engine import deliveries, reconcile, runner
from turnkit_django.engine import drain as draining
from turnkit_django.errors import BudgetError
from turnkit_django.models import Conversation, Delivery, Message, Turn
from turnkit_django.store import inboxes, reads, transitions
from turnkit_django.testing import Crash, ScriptedModel, assert_clean, crash_at, drain, text

pytestmark = pytest.mark.django_db(transaction=True)

UseModel = Callable[[Any], ScriptedModel]


@pytest.fixture
def conversation() -> Conversation:
    return helper.conversation()


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> dict[str, Agent]:
    """The registry, which ends as it was."""
    known = dict(registry.registered())
    monkeypatch.setattr(registry, "_agents", known)
    return known


def words(request: ModelRequest) -> list[str]:
    return [f"{message['role']}: {message['content']}" for message in request.messages]


def statuses() -> list[str]:
    return list(Turn.objects.order_by("pk").values_list("status", flat=True))


def test_a_message_to_a_running_conversation_is_not_in_its_request_but_in_the_next_turns(
    conversation: Conversation, turnkit_model: UseModel
):
    def meanwhile(request: Any) -> Any:
        conversation.post("meanwhile", key="k")
        assert deliveries.deliver_pending(limit=10).done == 1
        return text("first answer")

    model = turnkit_model([meanwhile, text("second answer"), text("third answer")])
    conversation.submit("first")
    drain()
    conversation.submit("second")
    drain()

    assert [words(request) for request in model.requests] == [
        ["user: first"],
        ["user: first", "assistant: first answer", "user: meanwhile"],
        [
            "user: first",
            "assistant: first answer",
            "user: meanwhile",
            "assistant: second answer",
            "user: second",
        ],
    ]
    stored = list(conversation.messages.order_by("sequence"))
    assert [message.text for message in stored][:3] == ["first", "meanwhile", "first answer"]
    assert statuses() == ["completed"] * 3
    assert_clean(model=model)


def test_two_turns_each_see_what_came_before_them_where_they_read_it(
    conversation: Conversation, turnkit_model: UseModel
):
    def posting(words: str, answer: str) -> Callable[[Any], Any]:
        def step(request: Any) -> Any:
            conversation.post(words, key=words)
            deliveries.deliver_pending(limit=10)
            return text(answer)

        return step

    model = turnkit_model([posting("one", "a"), posting("two", "b"), text("c")])
    conversation.submit("zero")
    drain()

    assert words(model.requests[-1]) == [
        "user: zero",
        "assistant: a",
        "user: one",
        "assistant: b",
        "user: two",
    ]
    assert words(model.requests[1]) == words(model.requests[2])[:3]
    assert [delivery.receiving_turn.output_text for delivery in Delivery.objects.order_by("pk")] == ["b", "c"]
    assert_clean(model=model)


def test_what_was_buffered_is_read_by_the_turn_that_waited_already(conversation: Conversation, turnkit_model: UseModel):
    def meanwhile(request: Any) -> Any:
        conversation.post("meanwhile", key="k")
        deliveries.deliver_pending(limit=10)
        return text("first answer")

    model = turnkit_model([meanwhile, text("both")])
    conversation.submit("first")
    second = conversation.submit("second")
    assert drain() == 2

    assert words(model.requests[1])[-2:] == ["user: meanwhile", "user: second"]
    assert Delivery.objects.get().receiving_turn == second
    assert_clean(model=model)


def test_an_inline_turn_reads_what_was_delivered_before_it(conversation: Conversation, turnkit_model: UseModel):
    model = turnkit_model([text("both")])
    conversation.post("hello", key="k")
    deliveries.deliver_pending(limit=10)
    Turn.objects.get().cancel()

    turn = conversation.ask("and you?")

    assert words(model.requests[0]) == ["user: hello", "user: and you?"]
    assert Delivery.objects.get().receiving_turn == turn
    assert drain() == 0
    assert_clean(model=model)


@pytest.mark.parametrize("end", ["inline", "stale", "cancelled"])
def test_a_message_is_read_however_the_turn_before_it_ended(
    conversation: Conversation, turnkit_model: UseModel, end: str
):
    def meanwhile(request: Any) -> Any:
        conversation.post("meanwhile", key="k")
        deliveries.deliver_pending(limit=10)
        if end == "cancelled":
            Turn.objects.get().cancel()
        return text("first answer")

    model = turnkit_model([meanwhile, text("read it")])
    if end == "inline":
        conversation.ask("first")
    elif end == "stale":
        with pytest.raises(Crash), crash_at("responded"):
            conversation.ask("first")
    else:
        conversation.submit("first")
        assert runner.run_next()
    drain()

    ended = {"inline": "completed", "stale": "stale", "cancelled": "cancelled"}[end]
    assert statuses() == [ended, "completed"]
    assert (Turn.objects.latest("pk").output_text, Message.objects.filter(content__0__text="meanwhile").count()) == (
        "read it",
        1,
    )
    assert conversation.input_status(Delivery.objects.get()).status == "applied"
    assert_clean(model=model)


def test_a_continuation_that_is_cancelled_is_made_anew(conversation: Conversation, turnkit_model: UseModel):
    model = turnkit_model([text("read it")])
    conversation.post("hello", key="k")
    deliveries.deliver_pending(limit=10)
    Turn.objects.get().cancel()

    assert drain() == 1

    assert statuses() == ["cancelled", "completed"]
    assert_clean(model=model)


def test_two_agents_that_answer_each_other_end_at_the_limit(turnkit_model: UseModel, settings: Any):
    settings.TURNKIT = {"MAX_HOPS": 5}
    ann, bob = helper.conversation(), helper.conversation()
    turnkit_model([])
    ann.post("go", key="go")
    refused = []
    for _ in range(10):
        deliveries.look()
        for claimed in transitions.claim(runner.holder()):
            source, destination = (ann, bob) if claimed.conversation == ann else (bob, ann)
            message = Delivery(
                id=new_delivery_id(), source=source, destination=destination, key=claimed.turn.pk, text="and you?"
            )
            held = claimed.claim
            try:
                held, _ = transitions.send_under_claim(held, message)
            except BudgetError as problem:
                refused.append(problem)
            transitions.complete(held, text="hi", reply=None)

    assert len(refused) == 1
    assert sorted(Turn.objects.values_list("hops", flat=True)) == [0, 1, 2, 3, 4, 5]


def test_an_agent_that_is_not_registered_keeps_its_messages_until_it_is_back(
    conversation: Conversation, turnkit_model: UseModel, agents: dict[str, Agent], caplog: pytest.LogCaptureFixture
):
    model = turnkit_model([text("read it"), text("read it")])
    gone = register(Agent(name="gone", model="openai/gpt-5-mini"))
    lane = gone.conversation()
    lane.post("hello", key="k")
    conversation.post("hello", key="k")
    del agents["gone"]

    assert drain(max_seconds=1) == 1  # the other conversation's

    kept = lane.inbox.get()
    assert (kept.delivered_at is not None, kept.error["type"]) == (True, "ConfigError")
    assert "'gone'" in kept.error["message"]
    assert inboxes.seconds_to_next() == pytest.approx(60, abs=10)
    assert f"deliveries {kept.pk} could not be handled" in caplog.text
    agents["gone"] = gone
    Delivery.objects.update(not_before=None)
    assert drain() == 1
    assert (lane.inbox.get().error, lane.turns.get().output_text) == (None, "read it")
    assert_clean(model=model)


def poison(lane: Conversation) -> None:
    """Messages of one conversation cannot be stored any more."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION pg_temp_refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN IF NEW.conversation_id = '{lane.pk}' THEN RAISE EXCEPTION 'poison'; END IF; RETURN NEW; END $$"
        )
        cursor.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON turnkit_message FOR EACH ROW EXECUTE FUNCTION pg_temp_refuse()"
        )


@pytest.fixture
def no_poison_left() -> Any:
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER IF EXISTS refuse ON turnkit_message; DROP FUNCTION IF EXISTS pg_temp_refuse")


@pytest.mark.usefixtures("no_poison_left")
def test_a_message_that_cannot_be_stored_is_set_aside_and_stops_no_other(
    conversation: Conversation, turnkit_model: UseModel
):
    model = turnkit_model([text("read it")])
    bad = helper.conversation()
    bad.post("hello", key="k")
    conversation.post("hello", key="k")
    poison(bad)

    counts = reconcile.run_pass(batch=10)

    kept = bad.inbox.get()
    assert (counts.delivered, counts.continued, counts.errors) == (1, 0, 1)
    assert (kept.delivered_at, kept.not_before is not None, "poison" in kept.error["message"]) == (None, True, True)
    assert drain(max_seconds=1) == 1
    assert conversation.turns.get().output_text == "read it"
    assert reconcile.run_pass(batch=10).total == 0
    assert_clean(conversation, model=model)


def test_a_database_error_while_setting_aside_is_logged_and_stops_no_other(
    conversation: Conversation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def fail(*_: object, **__: object) -> None:
        raise DatabaseError("no")

    conversation.post("hello", key="k")
    monkeypatch.setattr("turnkit_django.store.transitions.deliver", fail)
    monkeypatch.setattr("turnkit_django.store.transitions.set_deliveries_aside", fail)

    tally = deliveries.deliver_pending(limit=10)

    assert (tally.done, tally.errors) == (0, 1)
    assert "could not be set aside" in caplog.text


def test_messages_to_a_conversation_that_somebody_holds_cost_one_wait_and_stop_no_other(
    conversation: Conversation, turnkit_model: UseModel
):
    model = turnkit_model([text("read them")] * 2)
    held = helper.conversation()
    for number in range(3):
        held.post(f"message {number}", key=str(number))
    conversation.post("hello", key="k")

    with Held(lambda: held.say("I hold it")).open():
        assert deliveries.deliver_pending(limit=10).done == 1

    drain()
    assert held.turns.get().output_text == "read them"
    assert_clean(model=model)


def test_one_maintenance_pass_delivers_and_the_next_continues(conversation: Conversation, turnkit_model: UseModel):
    turnkit_model([text("hi")] * 2)
    conversation.submit("first")
    (held,) = transitions.claim(runner.holder())
    conversation.post("hello", key="k")

    counts = reconcile.run_pass(batch=10)
    assert (counts.delivered, counts.continued) == (1, 0)
    held.turn.cancel()
    counts = reconcile.run_pass(batch=10)
    assert (counts.delivered, counts.continued) == (0, 1)


def test_a_batch_is_bounded_and_the_oldest_come_first(conversation: Conversation):
    for number in range(3):
        conversation.post(f"message {number}", key=str(number))

    assert deliveries.deliver_pending(limit=2).done == 2
    assert list(conversation.messages.values_list("content__0__text", flat=True)) == ["message 0", "message 1"]


class TestSlices:
    """A wake-up's job, with a queue that notes what it is told."""

    @pytest.fixture
    def queue(self, settings: Any) -> list[str]:
        settings.TURNKIT = {"DISPATCHER": "tests.store.conftest.Noting"}
        wakes.clear()
        return wakes

    def test_one_job_delivers_and_answers(self, conversation: Conversation, turnkit_model: UseModel, queue: list[str]):
        model = turnkit_model([text("read it")])
        conversation.post("hello", key="k")

        jobs.wake()

        assert (conversation.turns.get().output_text, reads.has_due(), inboxes.has_work()) == ("read it", False, False)
        assert_clean(model=model)

    def test_a_slice_that_is_over_hands_messages_on(self, conversation: Conversation, queue: list[str]):
        conversation.post("hello", key="k")
        queue.clear()

        draining.run_slice(seconds=0)

        assert queue == ["wake", "wake"]  # for the turn that reads it, and at the end of the slice

    def test_without_messages_an_ended_slice_wakes_nobody(self, queue: list[str]):
        draining.run_slice(seconds=0)

        assert queue == []


def test_without_a_queue_reconcile_alone_delivers_and_answers(
    conversation: Conversation, turnkit_model: UseModel, settings: Any, caplog: pytest.LogCaptureFixture
):
    settings.TURNKIT = {"DISPATCHER": "tests.faults.transition_scenarios.NoQueue"}
    model = turnkit_model([text("read it")])
    conversation.post("hello", key="k")
    said = StringIO()

    call_command("turnkit_reconcile", "--run", stdout=said)

    assert "delivered 1, continued 0" in said.getvalue()
    assert conversation.turns.get().output_text == "read it"
    unsent = [record for record in caplog.records if getattr(record, "event", "") == "wake.unsent"]
    assert [] in [record.turn_ids for record in unsent]
    assert_clean(model=model)


def test_a_callback_survives_a_crash_behind_its_commit_and_names_the_turn(
    conversation: Conversation, turnkit_model: UseModel
):
    model = turnkit_model([text("the answer"), text("thank you")])
    asker = helper.conversation()
    turn = conversation.submit("please", callback=asker)

    with pytest.raises(Crash), crash_at("complete.committed"):
        runner.run_next()
    drain()

    told = json.loads(asker.messages.get(sequence=1).text)
    assert told == {
        "conversation_id": conversation.pk,
        "turn_id": turn.pk,
        "status": "completed",
        "result": "the answer",
    }
    assert asker.turns.get().output_text == "thank you"
    assert_clean(model=model)
