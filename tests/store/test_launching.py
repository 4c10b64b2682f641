"""Launches and waits of a worker's turn at their edges: what was erased, cancelled, ended or delivered meanwhile."""

import pytest
from django.db import OperationalError
from psycopg.errors import DeadlockDetected

from tests.testapp.agents import helper
from tests.testapp.delegating_agents import BOSS, boss, writer
from turnkit_django import Agent, ToolContext, register
from turnkit_django.core.ids import new_delivery_id
from turnkit_django.engine import runner
from turnkit_django.errors import LostClaim
from turnkit_django.models import Delivery, ToolExecution, Turn
from turnkit_django.store import transitions
from turnkit_django.store.transitions import ending
from turnkit_django.testing import assert_clean, call, drain, text
from turnkit_django.tools import SubAgentTool

pytestmark = pytest.mark.django_db(transaction=True)


def claimed_with_a_call() -> tuple[object, ToolExecution]:
    turn = boss.conversation().submit("do it")
    (one,) = transitions.claim(runner.holder())
    call_row = ToolExecution.objects.create(turn=turn, tool_name="wait_for", call_key="0" * 64, ordinal=0)
    return one.claim, call_row


@pytest.mark.parametrize("status", ["pending", "paused"])
def test_a_wait_for_a_turn_that_ends_just_then_gives_the_turn_back_at_once(status: str):
    held, call_row = claimed_with_a_call()
    target = helper.conversation().submit("quick")
    target.cancel()
    if status == "paused":
        Turn.objects.get(pk=held.turn_id).pause()
    transitions.join(held, call_row.pk, target_ids=[target.pk], arguments={})
    turn = Turn.objects.get(pk=held.turn_id)
    assert (turn.status, turn.pending_dependencies, turn.claim_token) == (status, 0, None)
    assert (turn.wake_sent_at is not None) == (status == "pending")
    assert ToolExecution.objects.get().started_at is not None


def test_a_wait_of_a_turn_that_was_erased_writes_nothing():
    held, call_row = claimed_with_a_call()
    target = helper.conversation().submit("quick")
    Turn.objects.filter(pk=held.turn_id).delete()
    with pytest.raises(LostClaim, match="was deleted while it ran"):
        transitions.join(held, call_row.pk, target_ids=[target.pk], arguments={})
    target.refresh_from_db()
    assert target.open_waiters == 0


def test_an_inline_turn_that_is_cancelled_before_its_child_starts_starts_none(turnkit_model):
    class Cancelling(SubAgentTool):
        """Delegate, though somebody cancels just now."""

        name = "cancelling"
        agent = writer

        def task_for(self, *, context: ToolContext) -> str:
            Turn.objects.get(pk=context.turn.pk).cancel()
            return "write"

    cancelled = register(Agent(name="cancelled_boss", model=BOSS, tools=[Cancelling]))
    model = turnkit_model([call("cancelling", {}), text("never")])
    turn = cancelled.conversation().ask("do it")
    assert (turn.status, turn.children.count(), len(model.requests)) == ("cancelled", 0, 1)
    assert_clean(model=model)


def test_sending_a_message_again_after_it_was_delivered_sends_nothing_more(turnkit_model):
    turnkit_model([text("read")])
    lane = helper.conversation()
    message = Delivery(id=new_delivery_id(), source=lane, destination=lane, key="k", text="hello")
    for _ in range(2):
        assert transitions.send(message, agent_name="helper").pk == message.pk
        drain()
    assert (Delivery.objects.count(), lane.messages.filter(role="user").count(), lane.turns.count()) == (1, 1, 1)


def test_a_deadlock_while_the_end_is_told_repeats_the_whole_end(turnkit_model, monkeypatch):
    real, tries = ending.stored_delivery, []

    def deadlocked_once(*args, **kwargs):
        tries.append(args)
        if len(tries) == 1:
            raise OperationalError("deadlock detected") from DeadlockDetected("deadlock detected")
        return real(*args, **kwargs)

    monkeypatch.setattr(ending, "stored_delivery", deadlocked_once)
    model = turnkit_model([text("the answer"), text("thank you")])
    asker = helper.conversation()
    turn = helper.conversation().submit("please", callback=asker)
    drain()
    turn.refresh_from_db()
    assert (turn.status, turn.callback_error, len(tries), asker.inbox.count()) == ("completed", None, 2, 1)
    assert_clean(model=model)
