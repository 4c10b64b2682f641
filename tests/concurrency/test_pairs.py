"""Two moves on one lane: the first holds its locks, the second waits for them, then sees what the first has done."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction

from tests.concurrency.threads import Held, alone, blocked, closing, deadlocks, observer
from tests.testapp.agents import helper
from tests.waiting import wait_until
from turnkit_django.core.states import Phase, ToolState
from turnkit_django.core.usage import Usage
from turnkit_django.engine import reconcile, runner
from turnkit_django.errors import LostClaim
from turnkit_django.models import Conversation, Message, ToolExecution, Turn
from turnkit_django.store import transitions
from turnkit_django.store.claims import Claim
from turnkit_django.store.records import NewCall, Next, Reply, Settlement
from turnkit_django.testing import assert_clean, drain

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def conversation(turnkit_model: Callable[[Any], object]) -> Conversation:
    turnkit_model([])
    return helper.conversation()


@pytest.fixture
def claim(conversation: Conversation) -> Claim:
    conversation.submit("please")
    return claim_next()


def claim_next() -> Claim:
    (one,) = transitions.claim(runner.holder())
    return one.claim


def reply(*calls: NewCall) -> Reply:
    parts: list[Any] = [
        {"type": "tool_call", "id": call.tool_call_id, "key": call.call_key, "name": call.tool_name, "arguments": "{}"}
        for call in calls
    ]
    return Reply(parts or [{"type": "text", "text": "hi"}], "openai", Usage(), Decimal(0), {})


CALL = NewCall("tool_1", "safe", "call_1", "k" * 64, 0, "running", True, "{}")


def store_reply(claim: Claim, *calls: NewCall) -> Claim:
    then = Next(Phase.TOOLS if calls else Phase.MODEL)
    return transitions.store_reply(claim, reply(*calls), calls=calls, then=then, lease_seconds=60)


def settle_tool(claim: Claim) -> Claim:
    settlement = Settlement(CALL.id, ToolState.COMPLETED.value, "ok", result={"n": 1})
    return transitions.settle_tool(
        claim, settlement, call_id=CALL.tool_call_id, call_key=CALL.call_key, then=Next(Phase.MODEL), lease_seconds=60
    )


def complete(claim: Claim) -> None:
    transitions.complete(claim, text="hi", reply=reply())


def cancel(claim: Claim) -> None:
    Turn.objects.get(pk=claim.turn_id).cancel()


def recover(claim: Claim) -> None:
    assert reconcile.recover(claim.turn_id, claim.token, 0, is_dead=True)


def statuses() -> list[str]:
    return list(Turn.objects.order_by("lane_position").values_list("status", flat=True))


def numbers() -> list[int]:
    return list(Message.objects.order_by("sequence").values_list("sequence", flat=True))


def test_a_complete_behind_a_cancel_is_told_that_the_claim_is_gone(claim: Claim):
    theirs = Held(lambda: cancel(claim)).and_behind_it(lambda: complete(claim))

    with pytest.raises(LostClaim):
        theirs.result()
    assert statuses() == ["cancelled"]
    assert numbers() == [1]
    assert_clean()


def test_a_cancel_behind_a_complete_finds_an_ended_turn(claim: Claim):
    theirs = Held(lambda: complete(claim), point="complete.written").and_behind_it(lambda: cancel(claim))

    assert theirs.exception() is None
    assert statuses() == ["completed"]
    assert numbers() == [1, 2]
    assert_clean()


def test_a_result_behind_a_cancel_is_not_stored(claim: Claim):
    held = store_reply(claim, CALL)
    theirs = Held(lambda: cancel(claim)).and_behind_it(lambda: settle_tool(held))

    with pytest.raises(LostClaim):
        theirs.result()
    assert statuses() == ["cancelled"]
    assert list(ToolExecution.objects.values_list("status", "result")) == [("interrupted", None)]
    assert numbers() == [1, 2, 3]
    assert_clean()


def test_a_reply_behind_a_recovery_is_not_stored(claim: Claim):
    theirs = Held(lambda: recover(claim)).and_behind_it(lambda: store_reply(claim, CALL))

    with pytest.raises(LostClaim):
        theirs.result()
    assert statuses() == ["pending"]
    assert (ToolExecution.objects.count(), numbers()) == (0, [1])
    assert drain() == 1
    assert_clean()


def test_a_recovery_behind_a_complete_finds_nothing_to_recover(claim: Claim):
    theirs = Held(lambda: complete(claim), point="complete.written").and_behind_it(
        lambda: reconcile.recover(claim.turn_id, claim.token, 0, is_dead=True)
    )

    assert theirs.result() is None
    assert statuses() == ["completed"]
    assert_clean()


def test_a_claim_passes_over_a_lane_that_a_submission_holds_and_takes_another(conversation: Conversation):
    other = helper.conversation()
    conversation.submit("one")
    with Held(lambda: conversation.submit("two")).open():
        assert transitions.claim(runner.holder()) == []
        other.submit("elsewhere")
        assert claim_next().conversation_id == other.pk

    assert claim_next().conversation_id == conversation.pk
    assert sorted(statuses()) == ["pending", "running", "running"]


def test_a_submission_behind_a_claim_takes_the_next_place(conversation: Conversation):
    conversation.submit("one")
    claiming = Held(claim_next, point="claim_due.written")
    theirs = claiming.and_behind_it(lambda: conversation.submit("two"))

    assert theirs.result().lane_position == 2
    assert statuses() == ["running", "pending"]
    # What was said after the claim is not seen by the turn that was claimed before it.
    assert list(Turn.objects.order_by("lane_position").values_list("context_sequence", flat=True)) == [1, 2]
    assert transitions.claim(runner.holder()) == []


@pytest.mark.parametrize("calls", [(), (CALL,)], ids=["words", "a_call"])
def test_a_reply_behind_a_message_takes_the_next_number(
    claim: Claim, conversation: Conversation, calls: tuple[NewCall, ...]
):
    theirs = Held(lambda: conversation.say("and this")).and_behind_it(lambda: store_reply(claim, *calls))

    assert theirs.result() == claim.after_write()
    assert list(Message.objects.order_by("sequence").values_list("sequence", "role")) == [
        (1, "user"),
        (2, "user"),
        (3, "assistant"),
    ]
    assert Conversation.objects.get().next_sequence == 4


def test_a_message_behind_an_answer_takes_the_next_number(claim: Claim, conversation: Conversation):
    theirs = Held(lambda: complete(claim), point="complete.written").and_behind_it(lambda: conversation.say("more"))

    assert theirs.result().sequence == 3
    assert_clean()


def test_a_second_cancel_behind_a_cancel_changes_nothing(claim: Claim):
    theirs = Held(lambda: cancel(claim)).and_behind_it(lambda: cancel(claim))

    assert theirs.exception() is None
    assert statuses() == ["cancelled"]
    assert_clean()


def test_two_claims_of_one_turn_at_once_give_one_token(conversation: Conversation):
    conversation.submit("one")
    with Held(claim_next, point="claim_due.written").open() as mine:
        assert transitions.claim(runner.holder()) == []
    first = mine.result()

    assert isinstance(first, Claim)
    assert list(Turn.objects.values_list("claim_token", "revision")) == [(first.token, 1)]
    assert transitions.claim(runner.holder()) == []


def test_two_inline_claims_of_one_turn_at_once_give_one_token(conversation: Conversation):
    turn = conversation.prepare("one")
    first = runner.holder()
    theirs = Held(lambda: transitions.claim_this(turn.pk, first), point="claim_inline.written").and_behind_it(
        lambda: transitions.claim_this(turn.pk, runner.holder())
    )

    with pytest.raises(Exception, match=f"{turn.pk} is running"):
        theirs.result()
    assert list(Turn.objects.values_list("claim_token", flat=True)) == list(first.tokens)


def test_of_two_submitted_turns_of_one_conversation_one_runs(conversation: Conversation):
    conversation.submit("one")
    conversation.submit("two")
    with Held(claim_next, point="claim_due.written").open():
        assert transitions.claim(runner.holder(slots=2)) == []

    assert transitions.claim(runner.holder(slots=2)) == []
    assert statuses() == ["running", "pending"]


def test_one_claim_of_many_slots_takes_one_turn_of_each_lane():
    lanes = [helper.conversation() for _ in range(3)]
    turns = [lane.submit(text) for lane in lanes for text in ("first", "second")]

    claimed = transitions.claim(runner.holder(slots=5))

    assert {one.turn.pk for one in claimed} == {turn.pk for turn in turns[::2]}
    assert sorted(statuses()) == ["pending"] * 3 + ["running"] * 3


def test_a_rolled_back_submission_leaves_no_turn_no_message_and_no_hole(conversation: Conversation):
    def submit_and_think_better() -> None:
        with transaction.atomic():
            conversation.submit("never mind")
            transaction.set_rollback(True)

    closing(submit_and_think_better)()
    conversation.submit("one")

    assert numbers() == [1]
    assert list(Turn.objects.values_list("lane_position", flat=True)) == [1]
    assert drain() == 1
    assert_clean()


def test_a_move_that_loses_a_deadlock_against_the_applications_own_locks_is_repeated(claim: Claim):
    def lock_upwards() -> None:
        with observer() as watching, transaction.atomic():
            Turn.objects.select_for_update(no_key=True).get(pk=claim.turn_id)
            has_turn.set()
            wait_until(lambda: blocked(watching), "the cancel does not wait")
            Conversation.objects.select_for_update(no_key=True).get(pk=claim.conversation_id)

    has_turn = threading.Event()
    with observer() as counting, ThreadPoolExecutor(1) as pool:
        before = deadlocks(counting)
        application = pool.submit(closing(lock_upwards))
        assert has_turn.wait(30)
        cancel(claim)
        application.result(30)
        alone(counting)
        assert deadlocks(counting) - before == 1

    assert statuses() == ["cancelled"]
    assert_clean()
