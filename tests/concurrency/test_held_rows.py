"""What a worker and maintenance do while the application keeps a row they need."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import DatabaseError, connection, transaction

from tests.testapp.agents import helper
from turnkit_django import failpoints
from turnkit_django.core.ids import new_token
from turnkit_django.dispatch.base import get_dispatcher
from turnkit_django.engine import drain as engine_drain
from turnkit_django.engine import reconcile, runner
from turnkit_django.models import Conversation, Turn
from turnkit_django.store import connections, transitions
from turnkit_django.store.claims import Holder
from turnkit_django.testing import assert_clean, call, drain, text

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def short_patience(monkeypatch):
    """The bounds of a worker's transaction, in tenths of a second instead of seconds."""

    def bounds(lock_seconds: float) -> str:
        return f"SET LOCAL lock_timeout = '{max(lock_seconds * 10, 1):.0f}ms'; "  # 0 would be for ever

    monkeypatch.setattr(connections, "_bounds", bounds)
    monkeypatch.setattr(connections, "BOUNDS", bounds(10))


@contextmanager
def held(lock: Callable[[], object]) -> Iterator[threading.Event]:
    """Another transaction that keeps what `lock` locks until the event is set."""
    is_held, may_end = threading.Event(), threading.Event()

    def keep() -> None:
        with transaction.atomic():
            lock()
            is_held.set()
            may_end.wait(30)
        connection.close()

    holder = threading.Thread(target=keep)
    holder.start()
    try:
        assert is_held.wait(30)
        yield may_end
    finally:
        may_end.set()
        holder.join()


@pytest.mark.parametrize("tool", ["unsafe", "safe"])
def test_a_result_in_hand_waits_for_the_lane_as_long_as_the_claim_holds(turnkit_model, tool):
    model = turnkit_model([call(tool, {"n": 1}), text("done")])
    conversation = helper.conversation()
    turn = conversation.submit("Go")
    tries: list[str] = []
    lane = held(lambda: Conversation.objects.get(pk=conversation.pk).say("more"))

    def watch(point: str) -> None:
        nonlocal may_end
        if point == "tool_returned":
            may_end = lane.__enter__()
        if point == "settle_tool.before":
            tries.append(point)
            if len(tries) == 5:  # more than the three tries of a passing error
                may_end.set()

    may_end = threading.Event()
    failpoints.arm(watch)
    try:
        assert runner.run_next()
    finally:
        failpoints.arm(None)
        lane.__exit__(None, None, None)
    turn.refresh_from_db()
    assert (turn.status, turn.attempts, turn.tool_executions.get().status) == ("completed", 0, "completed")
    assert_clean(model=model)


def test_a_locked_head_does_not_keep_a_worker_from_other_lanes(turnkit_model):
    model = turnkit_model(lambda _request: text("done"))
    first, second = (helper.conversation().submit("Go") for _ in range(2))
    with held(lambda: Turn.objects.select_for_update().get(pk=first.pk)):
        engine_drain.run_slice(seconds=30)
        statuses = [Turn.objects.get(pk=turn.pk).status for turn in (first, second)]
    assert statuses == ["pending", "completed"]
    drain()
    assert_clean(model=model)


def test_a_worker_that_gives_up_on_a_held_lane_leaves_a_wake_up(turnkit_model, monkeypatch):
    turnkit_model([text("done")])
    conversation = helper.conversation()
    conversation.submit("Go")
    sent: list[str] = []
    monkeypatch.setattr(type(get_dispatcher()), "send_wake", lambda _self: sent.append("wake"))
    with held(lambda: Conversation.objects.select_for_update().get(pk=conversation.pk)):
        engine_drain.run_slice(seconds=30)
    assert sent == ["wake"]


def test_a_lane_that_somebody_holds_does_not_keep_maintenance_from_the_next():
    conversations = [helper.conversation() for _ in range(2)]
    turns = [conversation.submit("Hi") for conversation in conversations]
    for _ in turns:
        transitions.claim(Holder("gone:1:1", 60, (new_token(),)))
    Turn.objects.update(lease_expires_at="2000-01-01T00:00Z")
    with held(lambda: Conversation.objects.select_for_update().get(pk=conversations[0].pk)):
        counts = reconcile.run_pass(batch=10)
        assert (counts.recovered, counts.errors) == (1, 0)
        assert [Turn.objects.get(pk=turn.pk).status for turn in turns] == ["running", "pending"]
    assert reconcile.run_pass(batch=10).recovered == 1


@pytest.mark.parametrize("is_delivered", [False, True], ids=["pending", "unread"])
def test_a_worker_that_passes_over_the_messages_of_a_held_lane_leaves_a_wake_up(
    turnkit_model, monkeypatch, is_delivered
):
    model = turnkit_model([text("read it")])
    conversation = helper.conversation()
    sent = conversation.post("hello", key="k")
    if is_delivered:
        transitions.deliver(sent.pk, draft=None)
    wakes: list[str] = []
    monkeypatch.setattr(type(get_dispatcher()), "send_wake", lambda _self: wakes.append("wake"))
    with held(lambda: Conversation.objects.select_for_update().get(pk=conversation.pk)):
        engine_drain.run_slice(seconds=30)
    assert wakes == ["wake"]
    engine_drain.run_slice(seconds=30)
    assert conversation.turns.get().output_text == "read it"
    assert_clean(model=model)


def test_a_message_that_cannot_be_handled_leaves_no_wake_up(turnkit_model, monkeypatch):
    turnkit_model([])
    helper.conversation().post("hello", key="k")
    wakes: list[str] = []
    monkeypatch.setattr(type(get_dispatcher()), "send_wake", lambda _self: wakes.append("wake"))

    def fail(*_: object, **__: object) -> None:
        raise DatabaseError("no")

    monkeypatch.setattr(transitions, "deliver", fail)
    monkeypatch.setattr(transitions, "set_deliveries_aside", fail)
    engine_drain.run_slice(seconds=30)
    assert wakes == []
