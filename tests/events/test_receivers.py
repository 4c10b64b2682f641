"""A receiver that fails, or leaves a mess, changes nothing for the turn, for the worker or for other receivers."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import TestCase

from tests.events import recording
from tests.events.recording import NOTE, connected, heard, types
from tests.testapp.agents import helper, safe
from tests.testapp.models import Effect
from turnkit_django import Agent, register
from turnkit_django.agents import registry
from turnkit_django.core.events import Event
from turnkit_django.dispatch import RQDispatcher
from turnkit_django.models import Turn
from turnkit_django.testing import assert_clean, call, drain, text

pytestmark = pytest.mark.django_db(transaction=True)


def fail(event: Event, **_: object) -> None:
    raise RuntimeError(f"no room for {event.type}, password='correcthorse1'")


def leave(event: Event) -> None:
    raise SystemExit(3)


def begin(event: Event) -> None:
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO testapp_effect (name, key, n) VALUES ('lost', '', 1)")


def enter(event: Event) -> None:
    transaction.atomic().__enter__()
    Effect.objects.create(name="lost")


def break_it(event: Event) -> None:
    connection.set_autocommit(False)
    with connection.cursor() as cursor, pytest.raises(Exception, match="does not exist"):
        cursor.execute("SELECT * FROM nowhere")


def hang_up(event: Event) -> None:
    connection.ensure_connection()
    connection.connection.close()


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "receiver.failed"]


def run(turnkit_model: Callable[[Any], Any], mode: str, agent: Agent, **options: Any) -> Turn:
    model = turnkit_model([call("safe", {"n": 1}), text("done")])
    if mode == "inline":
        turn = agent.conversation().ask("please", **options)
    else:
        turn = agent.conversation().submit("please")
        drain()
        turn.refresh_from_db()
    assert_clean(model=model)
    return turn


@pytest.mark.parametrize("mode", ["inline", "background"])
@pytest.mark.parametrize("receiver", [fail, leave, begin, enter, break_it])
def test_a_bad_receiver_at_every_level_changes_nothing(
    turnkit_model, monkeypatch, settings, caplog, mode: str, receiver: Callable[..., None]
):
    monkeypatch.setattr(registry, "_agents", dict(registry.registered()))
    monkeypatch.setattr(recording, "note", receiver)
    settings.TURNKIT = {"ON_EVENT": NOTE}
    found: list[Event] = []
    agent = register(Agent(name="bad", model="openai/gpt-5-mini", tools=[safe], on_event=[receiver, found.append]))

    with connected(lambda event, **_: receiver(event)), heard() as last:
        turn = run(turnkit_model, mode, agent, **({"on_event": receiver} if mode == "inline" else {}))

    assert (turn.status, turn.output_text, turn.attempts) == ("completed", "done", 0)
    assert types(found)[-1] == "turn.completed"
    levels = 4 if mode == "inline" else 3
    assert len(failures(caplog)) == levels * len(found)
    assert list(Effect.objects.values_list("name", flat=True)) == ["safe"]
    # Django stops at a receiver that ends the process; whoever else listens has heard the event before or after.
    assert receiver is leave or last == found


def test_the_log_of_a_failing_receiver_holds_no_secret(turnkit_model, caplog):
    with connected(fail):
        run(turnkit_model, "inline", helper, on_event=fail)
    told = failures(caplog)
    assert len(told) > 10
    assert all("no room for" in line and "correcthorse1" not in line for line in told)
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_receiver_that_loses_the_connection_harms_nobody(turnkit_model):
    assert run(turnkit_model, "inline", helper, on_event=hang_up).status == "completed"


class Stopping(RQDispatcher):
    """The queue of a worker that was asked to stop."""

    def is_stopping(self) -> bool:
        return True


@pytest.mark.parametrize("order", [KeyboardInterrupt, SystemExit])
def test_an_order_to_stop_gets_through_a_receiver(turnkit_model, settings, order):
    settings.TURNKIT = {"DISPATCHER": f"{__name__}.Stopping"}
    turnkit_model([text("done")])

    def interrupted(event: Event) -> None:
        if event.type == "model.requested":
            raise order

    with pytest.raises(order):
        helper.conversation().ask("please", on_event=interrupted)
    assert Turn.objects.get().error["type"] == "WorkerStopped"


def test_a_receiver_may_write_and_use_the_verbs(turnkit_model):
    turnkit_model([text("done"), text("and more")])
    conversation = helper.conversation()

    def go_on(event: Event) -> None:
        Effect.objects.create(name=event.type)
        if event.type == "turn.completed":
            conversation.submit("go on")

    conversation.ask("please", on_event=go_on)
    drain()
    assert list(Turn.objects.order_by("pk").values_list("status", flat=True)) == ["completed", "completed"]
    assert Effect.objects.filter(name="turn.completed").count() == 1


def test_a_receiver_may_cancel_the_turn_it_hears_of(turnkit_model):
    model = turnkit_model([call("safe", {"n": 1}), text("done")])
    found: list[Event] = []

    def stop(event: Event) -> None:
        found.append(event)
        if event.type == "tool_call.created":
            Turn.objects.get(pk=event.turn_id).cancel()

    turn = helper.conversation().ask("please", on_event=stop)
    assert (turn.status, types(found).count("turn.cancelled")) == ("cancelled", 1)
    assert_clean(model=model)


def test_a_pickled_turn_takes_no_callable_along():
    turn = helper.conversation().prepare("please", on_event=lambda event: None)
    assert (turn.follower is None, pickle.loads(pickle.dumps(turn)).follower) == (False, None)


class InATestCase(TestCase):
    """Nothing commits here, so events wait for whoever captures them."""

    def test_events_come_with_captured_callbacks(self):
        with heard() as found:
            with self.captureOnCommitCallbacks(execute=True):
                conversation = helper.conversation()
                conversation.submit("please")
                assert found == []
            assert types(found) == ["message.created", "turn.submitted"]
