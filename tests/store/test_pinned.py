"""Promises of the store that nothing else in the suite would miss."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.store.conftest import Noting, wakes
from tests.store.wire import Wire, open_wire
from turnkit_django.core.states import Phase, ToolState
from turnkit_django.core.usage import Usage
from turnkit_django.dispatch import base
from turnkit_django.engine import runner
from turnkit_django.errors import LostClaim, StateError
from turnkit_django.models import Conversation, Message, ToolExecution, Turn
from turnkit_django.store import connections, outbox, sql, transitions
from turnkit_django.store.claims import Claim
from turnkit_django.store.records import NewCall, Next, Reply, Settlement
from turnkit_django.store.transitions import waking
from turnkit_django.testing import assert_clean, call, text

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("queue")]

LEASE = 60
CALLS = Reply(
    parts=[{"type": "tool_call", "id": "c1", "key": "k1", "name": "unsafe", "arguments": "{}"}],
    provider="x",
    usage=Usage(),
    cost=Decimal(0),
    metadata={},
)
CALL = NewCall("tool_1", "unsafe", "c1", "k1", 0, "pending", False, "{}")
HOT = ["STORE_REPLY", "START_TOOL", "SETTLE_TOOL", "RENEW_LEASES"]


@pytest.fixture
def wire(transactional_db: None) -> Iterator[Wire]:
    with open_wire() as wire:
        yield wire


def claimed() -> Claim:
    (one,) = transitions.claim(runner.holder())
    return one.claim


def stored(turn: Turn) -> Turn:
    return Turn.objects.get(pk=turn.pk)


def store_call(claim: Claim) -> Claim:
    return transitions.store_reply(claim, CALLS, calls=[CALL], then=Next(Phase.TOOLS), lease_seconds=LEASE)


def start_tool(claim: Claim) -> Claim:
    return transitions.start_tool(claim, "tool_1", tool_name="safe", arguments={"n": 2}, lease_seconds=LEASE)


def settle_tool(claim: Claim, told: str = "first") -> Claim:
    settlement = Settlement("tool_1", ToolState.COMPLETED.value, told, result=told)
    return transitions.settle_tool(
        claim, settlement, call_id="c1", call_key="k1", then=Next(Phase.MODEL), lease_seconds=LEASE
    )


def everything() -> list[list[dict[str, Any]]]:
    """All rows that a worker writes."""
    kinds = (Conversation, Turn, Message, ToolExecution)
    return [list(kind.objects.order_by("pk").values()) for kind in kinds]


def forget_wakes() -> None:
    """As if every wake-up so far had been lost, and that were known."""
    wakes.clear()
    Turn.objects.update(wake_sent_at=None)


def test_cancelling_the_running_turn_of_a_lane_wakes_the_next_one(conversation: Conversation, queue: list[str]):
    first, second = conversation.submit("one"), conversation.submit("two")
    assert claimed().turn_id == first.pk
    forget_wakes()

    first.cancel()

    assert queue == ["wake"]
    assert (stored(first).wake_sent_at, stored(second).wake_sent_at is not None) == (None, True)
    assert claimed().turn_id == second.pk


def test_giving_up_the_overdue_head_of_a_lane_wakes_the_next_one(conversation: Conversation, queue: list[str]):
    first, second = conversation.submit("one"), conversation.submit("two")
    forget_wakes()

    # Not by a whole pass, whose last step wakes all that is silent.
    assert transitions.give_up(first.pk, error={"type": "BudgetError", "message": "late", "details": {}})

    assert queue == ["wake"]
    assert (stored(first).status, stored(second).wake_sent_at is not None) == ("failed", True)
    assert claimed().turn_id == second.pk


def test_a_claim_voids_the_wake_up_of_its_turn(conversation: Conversation):
    turn = conversation.submit("please")
    assert stored(turn).wake_sent_at is not None

    claimed()

    assert stored(turn).wake_sent_at is None


@pytest.mark.parametrize("move", [start_tool, settle_tool])
def test_a_settled_execution_is_neither_started_nor_settled_again(
    conversation: Conversation, move: Callable[[Claim], Claim]
):
    conversation.submit("please")
    claim = settle_tool(start_tool(store_call(claimed())))
    before = ToolExecution.objects.values().get()
    messages = Message.objects.count()

    with pytest.raises(StateError, match="its execution is not in a state for that"):
        settle_tool(claim, "second") if move is settle_tool else start_tool(claim)

    assert ToolExecution.objects.values().get() == before
    assert (before["status"], before["result"], Message.objects.count()) == ("completed", "first", messages)


def test_a_reply_under_a_token_that_was_never_given_out_is_not_stored(conversation: Conversation):
    conversation.submit("please")
    claim = claimed()
    before = everything()

    with pytest.raises(LostClaim):
        store_call(replace(claim, token="0" * 32))

    assert everything() == before
    assert store_call(claim).revision == claim.revision + 1


@pytest.mark.parametrize(
    ("prepare", "move"),
    [
        (lambda claim: claim, store_call),
        (store_call, start_tool),
        (lambda claim: start_tool(store_call(claim)), settle_tool),
    ],
    ids=["store_reply", "start_tool", "settle_tool"],
)
def test_each_write_of_a_worker_prolongs_its_lease(
    conversation: Conversation, prepare: Callable[[Claim], Claim], move: Callable[[Claim], Claim]
):
    turn = conversation.submit("please")
    claim = prepare(claimed())
    Turn.objects.update(lease_expires_at=stored(turn).claimed_at)

    move(claim)

    ends, now = stored(turn).lease_expires_at, _now()
    assert ends is not None
    assert 0 < LEASE - (ends - now).total_seconds() < 20


def _now() -> datetime:
    with connections.current().cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
        return now


@pytest.mark.parametrize("name", HOT)
def test_a_hot_statement_reads_the_clock_when_it_writes(name: str):
    """`now()` is the start of the transaction: after a wait for a lock it would make a lease that has expired."""
    words = getattr(sql, name).lower()

    assert [stale for stale in ("now()", "current_timestamp", "statement_timestamp") if stale in words] == []


def test_leases_are_renewed_in_one_order_and_never_wait():
    words = " ".join(sql.RENEW_LEASES.split())

    assert "ORDER BY t.id FOR NO KEY UPDATE OF t SKIP LOCKED" in words


def test_a_hot_statement_brings_its_bounds_along(
    conversation: Conversation, wire: Wire, turnkit_model: Callable[[Any], Any]
):
    model = turnkit_model([call("unsafe", {"n": 1}), text("done")])
    conversation.submit("please")
    runner.run_next()

    hot = [message.sql for message in wire.sent if "fence AS" in message.sql]
    assert [sql.startswith(connections.BOUNDS + "\nWITH") for sql in hot] == [True] * 3
    assert_clean(model=model)


def test_no_exception_out_of_a_dispatcher_reaches_the_submitter(
    conversation: Conversation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def no_queue() -> None:
        raise RuntimeError("no queue today")

    def no_database(turn_ids: tuple[str, ...]) -> None:
        raise RuntimeError(f"no database either for {len(turn_ids)}")

    monkeypatch.setattr(outbox, "get_dispatcher", no_queue)
    monkeypatch.setattr(waking, "unsent", no_database)
    before = outbox.unsent_count
    with caplog.at_level(logging.WARNING):
        turn = conversation.submit("please")

    assert (stored(turn).status, stored(turn).lane_position) == ("pending", 1)
    assert outbox.unsent_count == before + 1
    (told,) = [record for record in caplog.records if getattr(record, "event", "") == "wake.unsent"]
    assert told.turn_ids == [turn.pk]
    assert "no database either for 1" in caplog.text


def test_a_wake_up_that_was_not_sent_is_counted_and_left_to_reconcile(
    conversation: Conversation, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Noting, "send_wake", lambda _self: 1 / 0)
    assert isinstance(base.get_dispatcher(), Noting)
    before = outbox.unsent_count
    turn = conversation.submit("please")

    assert (outbox.unsent_count, stored(turn).wake_sent_at) == (before + 1, None)
