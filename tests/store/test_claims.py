"""The fence: who may write, and who is told that it may not."""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest

from tests.testapp.agents import helper
from turnkit_django.core.states import Phase, ToolState
from turnkit_django.core.usage import Usage
from turnkit_django.engine import reconcile, runner
from turnkit_django.errors import LostClaim
from turnkit_django.models import Message, ToolExecution, Turn
from turnkit_django.store import transitions
from turnkit_django.store.claims import Claim
from turnkit_django.store.records import AttemptEnd, Next, Reply, Settlement

pytestmark = pytest.mark.django_db(transaction=True)

REPLY = Reply(parts=[{"type": "text", "text": "late"}], provider="x", usage=Usage(), cost=Decimal(0), metadata={})
MODEL = Next(Phase.MODEL)


def claimed() -> Claim:
    (one,) = transitions.claim(runner.holder())
    return one.claim


def recovered(claim: Claim) -> None:
    assert reconcile.recover(claim.turn_id, claim.token, 0, is_dead=True) is not None


def store_reply(claim: Claim) -> object:
    return transitions.store_reply(claim, REPLY, calls=[], then=MODEL, lease_seconds=60)


def start_tool(claim: Claim) -> object:
    return transitions.start_tool(claim, "tool_x", tool_name="safe", arguments={}, lease_seconds=60)


def settle_tool(claim: Claim) -> object:
    settlement = Settlement("tool_x", ToolState.COMPLETED.value, "late")
    return transitions.settle_tool(claim, settlement, call_id="", call_key="k", then=MODEL, lease_seconds=60)


def complete(claim: Claim) -> object:
    return transitions.complete(claim, text="late", reply=REPLY)


def fail(claim: Claim) -> object:
    return transitions.fail(claim, error={}, attempt=AttemptEnd.LOST)


def park(claim: Claim) -> object:
    return transitions.park(claim, error={}, seconds=0, attempt=AttemptEnd.REFUSED)


def release(claim: Claim) -> object:
    return transitions.release(claim, error={}, seconds=0, attempt=AttemptEnd.LOST, is_fault=True)


WORKERS_MOVES = [store_reply, start_tool, settle_tool, complete, fail, park, release]


def taken_over(claim: Claim) -> None:
    """Somebody else has it now."""
    recovered(claim)
    claimed()


def taken_over_and_cancelled(claim: Claim) -> None:
    """Somebody else had it: no token, and a revision that counts one claim more."""
    taken_over(claim)
    Turn.objects.get(pk=claim.turn_id).cancel()


def taken_over_twice(claim: Claim) -> None:
    recovered(claim)
    recovered(claimed())


def cancelled(claim: Claim) -> None:
    Turn.objects.get(pk=claim.turn_id).cancel()


def completed(claim: Claim) -> None:
    """By the holder itself."""
    transitions.complete(claim, text="hi", reply=None)


MEANWHILE = [recovered, taken_over, taken_over_and_cancelled, taken_over_twice, cancelled, completed]


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("write", WORKERS_MOVES)
def test_a_ghost_is_told_and_changes_nothing(write: Callable[[Claim], object], meanwhile: Callable[[Claim], None]):
    helper.conversation().submit("please")
    ghost = claimed()
    meanwhile(ghost)
    before = list(Turn.objects.values()), list(Message.objects.values()), list(ToolExecution.objects.values())

    with pytest.raises(LostClaim, match=f"turn {ghost.turn_id} is no longer held under token {ghost.token[:8]}"):
        write(ghost)

    assert before == (
        list(Turn.objects.values()),
        list(Message.objects.values()),
        list(ToolExecution.objects.values()),
    )


def test_a_write_under_an_older_revision_of_the_same_claim_is_recognised_as_stored():
    helper.conversation().submit("please")
    first = claimed()
    store_reply(first)

    assert first.after_write() == store_reply(first)
    assert Message.objects.count() == 2


@pytest.mark.parametrize("write", [complete, fail, park, release])
def test_an_end_under_an_older_revision_of_the_same_claim_is_refused(write: Callable[[Claim], object]):
    helper.conversation().submit("please")
    first = claimed()
    store_reply(first)
    before = list(Turn.objects.values())

    with pytest.raises(LostClaim):
        write(first)
    assert list(Turn.objects.values()) == before


def test_a_turn_that_is_gone_is_lost():
    helper.conversation().submit("please")
    ghost = claimed()
    Turn.objects.all().delete()

    for write in WORKERS_MOVES:
        with pytest.raises(LostClaim):
            write(ghost)


def test_a_claim_that_names_another_conversation_writes_nothing():
    helper.conversation().submit("please")
    claim = replace(claimed(), conversation_id=helper.conversation().pk)

    with pytest.raises(LostClaim):
        store_reply(claim)
    assert Message.objects.count() == 1


def test_a_claim_of_a_free_turn_returns_the_token_that_is_stored():
    helper.conversation().submit("please")

    claim = claimed()

    assert [(claim.token, claim.revision)] == list(Turn.objects.values_list("claim_token", "revision"))
    assert transitions.claim(runner.holder()) == []


def test_a_later_claim_has_a_new_token_and_keeps_the_first_start():
    helper.conversation().submit("please")
    first = claimed()
    start = Turn.objects.get().started_at
    recovered(first)

    second = claimed()

    assert second.token != first.token
    assert start is not None
    assert Turn.objects.get().started_at == start
