"""Moves one by one: what each refuses, what it leaves alone, and who is woken."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from tests.concurrency.threads import Held
from tests.testapp.agents import helper
from turnkit_django.core.states import Phase
from turnkit_django.core.usage import Usage
from turnkit_django.engine import reconcile, runner
from turnkit_django.errors import LostClaim, StateError
from turnkit_django.models import Conversation, Message, Turn
from turnkit_django.store import reads, transitions
from turnkit_django.store.claims import Claim
from turnkit_django.store.records import AttemptEnd, Next, Reply
from turnkit_django.testing import ScriptedModel, assert_clean, call, drain, text

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("queue")]


def claimed() -> Claim:
    (one,) = transitions.claim(runner.holder())
    return one.claim


def stored(turn: Turn) -> Turn:
    return Turn.objects.get(pk=turn.pk)


def test_a_key_that_is_used_again_with_the_same_text_gives_the_first_turn(conversation: Conversation, queue: list[str]):
    first = conversation.submit("please", key="k")

    assert conversation.submit("please", key="k") == first
    assert conversation.prepare("please", key="k") == first
    assert (Turn.objects.count(), Message.objects.count(), queue) == (1, 1, ["wake"])


@pytest.mark.parametrize("other", ["something else", None])
def test_a_key_that_is_used_for_another_text_is_refused(conversation: Conversation, other: str | None):
    first = conversation.prepare("please", key="k")

    with pytest.raises(StateError, match=f"key 'k' belongs to {first.pk} of {conversation.pk}"):
        conversation.prepare(other, key="k")
    assert (Turn.objects.count(), Message.objects.count()) == (1, 1)


def test_a_key_belongs_to_its_conversation(conversation: Conversation):
    assert conversation.submit("please", key="k") != helper.conversation().submit("something else", key="k")


def test_a_key_of_a_turn_without_a_text_is_known_again(conversation: Conversation):
    conversation.say("please")

    assert conversation.prepare(key="k") == conversation.prepare(key="k")
    assert Message.objects.count() == 1


def test_an_ask_with_a_known_key_runs_once_and_gives_the_first_turn(
    conversation: Conversation, turnkit_model: Callable[[Any], ScriptedModel]
):
    model = turnkit_model([text("done")])
    first = conversation.ask("please", key="k")

    assert conversation.ask("please", key="k") == first
    assert (first.status, len(model.requests)) == ("completed", 1)
    assert_clean(model=model)


def test_an_ask_runs_the_turn_that_was_prepared_under_its_key(
    conversation: Conversation, turnkit_model: Callable[[Any], ScriptedModel]
):
    turnkit_model([text("done")])
    prepared = conversation.prepare("please", key="k")

    assert conversation.ask("please", key="k") == prepared
    assert (stored(prepared).status, Message.objects.count()) == ("completed", 2)


def test_a_turn_that_is_submitted_twice_keeps_its_place_and_wakes_once(conversation: Conversation, queue: list[str]):
    turn = conversation.prepare("please")
    turn.submit()
    first = stored(turn)
    turn.submit()

    assert stored(turn).submitted_at == first.submitted_at
    assert (stored(turn).lane_position, queue) == (1, ["wake"])


def test_a_turn_that_ended_without_a_submission_cannot_be_submitted(conversation: Conversation):
    turn = conversation.prepare("please")
    turn.cancel()

    with pytest.raises(StateError, match=f"{turn.pk} is cancelled and was never submitted"):
        turn.submit()


def test_a_submission_commits_or_rolls_back_with_the_applications_transaction(
    conversation: Conversation, queue: list[str]
):
    with transaction.atomic():
        conversation.submit("please")
        assert queue == []
    assert queue == ["wake"]
    with transaction.atomic():
        conversation.submit("never mind")
        transaction.set_rollback(True)

    assert (Turn.objects.count(), queue) == (1, ["wake"])


@pytest.mark.parametrize("move", [lambda turn: turn.cancel(), lambda turn: transitions.give_up(turn.pk, error={})])
def test_an_ended_turn_stays_as_it_ended(
    conversation: Conversation, turnkit_model: Callable[[Any], ScriptedModel], move: Callable[[Turn], object]
):
    turnkit_model([text("done")])
    turn = conversation.ask("please")
    move(turn)
    transitions.set_aside(turn.pk, error={"type": "X"}, seconds=60)

    assert (stored(turn).status, stored(turn).error, stored(turn).not_before) == ("completed", None, None)


def test_a_turn_whose_workers_die_too_often_fails_and_says_so(conversation: Conversation, settings: Any):
    settings.TURNKIT = {**settings.TURNKIT, "MAX_RECOVERIES": 1}
    turn = conversation.submit("please")
    for _ in range(2):
        held = claimed()
        reconcile.recover(turn.pk, held.token, 0, is_dead=True)

    ended = stored(turn)
    assert (ended.status, ended.attempts, ended.unknown_attempts, ended.cost) == ("failed", 2, 2, None)
    assert ended.error == {
        "type": "WorkerDied",
        "message": "2 workers died while they ran this turn",
        "details": {"attempts": 2},
    }
    assert_clean()


def test_a_living_worker_keeps_its_turn(conversation: Conversation):
    turn = conversation.submit("please")
    held = claimed()

    assert reconcile.recover(turn.pk, held.token, 0) is None
    assert reconcile.recover(turn.pk, "another token", 0, is_dead=True) is None
    assert stored(turn).claim_token == held.token


def test_an_expired_lease_ends_the_claim(conversation: Conversation, queue: list[str]):
    turn = conversation.submit("please")
    held = claimed()
    transitions.renew([held], lease_seconds=0)

    assert reconcile.run_pass(batch=10).recovered == 1
    assert (stored(turn).status, stored(turn).attempts, queue) == ("pending", 1, ["wake", "wake"])
    with pytest.raises(LostClaim):
        transitions.complete(held, text="late", reply=None)


@pytest.mark.parametrize(
    ("end", "iterations", "unknown", "cost"),
    [
        (AttemptEnd.UNSENT, 0, 0, Decimal(0)),
        (AttemptEnd.REFUSED, 0, 0, Decimal(0)),
        (AttemptEnd.ANSWERED, 1, 0, Decimal(0)),
        (AttemptEnd.LOST, 1, 1, None),
    ],
)
def test_the_open_model_call_of_a_failed_turn_is_settled(
    conversation: Conversation, end: AttemptEnd, iterations: int, unknown: int, cost: Decimal | None
):
    turn = conversation.submit("please")
    transitions.fail(claimed(), error={"type": "X"}, attempt=end)

    ended = stored(turn)
    assert (ended.iterations, ended.unknown_attempts, ended.cost) == (iterations, unknown, cost)
    assert (ended.attempt_id, ended.attempt_started_at) == (None, None)


def test_a_released_turn_without_a_fault_is_due_at_once_and_wakes(conversation: Conversation, queue: list[str]):
    turn = conversation.submit("please")
    held = claimed()
    transitions.release(held, error=None, seconds=0, attempt=AttemptEnd.UNSENT, is_fault=False)

    assert (stored(turn).status, stored(turn).attempts, stored(turn).not_before) == ("pending", 0, None)
    assert queue == ["wake", "wake"]
    assert claimed().turn_id == turn.pk


def test_the_end_of_an_inline_turn_wakes_the_next_one_of_the_lane(
    conversation: Conversation, turnkit_model: Callable[[Any], ScriptedModel], queue: list[str]
):
    def meanwhile(request: Any) -> Any:
        conversation.submit("and this")
        assert queue == ["wake"]
        return text("done")

    model = turnkit_model([meanwhile, text("done")])
    conversation.ask("please")

    assert queue == ["wake", "wake"]
    assert drain() == 1
    assert_clean(model=model)


def test_an_inline_turn_that_fails_wakes_the_next_one_too(
    conversation: Conversation, turnkit_model: Callable[[Any], ScriptedModel], queue: list[str]
):
    def meanwhile(request: Any) -> Any:
        conversation.submit("and this")
        return {"error": {"status": 400}}

    turnkit_model([meanwhile, text("done")])

    assert conversation.ask("please").status == "failed"
    assert queue == ["wake", "wake"]


def test_a_claim_of_a_turn_whose_tools_are_all_settled_goes_on_with_the_model(
    conversation: Conversation, turnkit_model: Callable[[Any], ScriptedModel]
):
    turn = conversation.submit("please")
    held = claimed()
    reply = Reply([{"type": "text", "text": "hm"}], "x", Usage(), Decimal(0), {"finish_reason": "length"})
    transitions.store_reply(held, reply, calls=[], then=Next(Phase.TOOLS), lease_seconds=60)
    reconcile.recover(turn.pk, held.token, 0, is_dead=True)
    claimed()

    assert (stored(turn).phase, stored(turn).attempt_id is not None) == ("model", True)


def test_a_waiting_turn_is_readied_when_its_time_has_come_and_not_before(
    conversation: Conversation, turnkit_model: Callable[[Any], ScriptedModel]
):
    turnkit_model([{"error": {"status": 429, "retry_after": 60}}])
    turn = conversation.submit("please")
    runner.run_next()

    assert transitions.ready(turn.pk) is None
    assert reads.seconds_to_next() == pytest.approx(60, abs=10)
    Turn.objects.filter(pk=turn.pk).update(not_before=timezone.now() - timedelta(seconds=1))
    assert reads.ready(limit=1) == [turn.pk]
    assert transitions.ready(turn.pk) is not None
    assert transitions.ready(turn.pk) is None
    assert stored(turn).status == "pending"


def test_maintenance_passes_over_a_lane_that_somebody_holds(conversation: Conversation):
    turn = conversation.submit("please")
    held = claimed()
    with Held(lambda: Conversation.objects.select_for_update(no_key=True).get(pk=conversation.pk)).open():
        assert reconcile.recover(turn.pk, held.token, 0, is_dead=True) is None

    assert stored(turn).status == "running"
    assert reconcile.recover(turn.pk, held.token, 0, is_dead=True) is not None


def test_a_wake_up_that_is_on_its_way_is_not_sent_again(conversation: Conversation, queue: list[str]):
    turn = conversation.submit("please")
    assert reconcile.run_pass(batch=10).woken == 0

    Turn.objects.filter(pk=turn.pk).update(wake_sent_at=timezone.now() - reads.WAKE_LIFETIME)
    assert reconcile.run_pass(batch=10).woken == 1
    assert reconcile.run_pass(batch=10).woken == 0
    assert queue == ["wake", "wake"]


def test_a_small_batch_reaches_the_ready_turn_among_ended_and_blocked_ones(queue: list[str]):
    """runtime.md 12.17, 175."""
    for _ in range(4):
        helper.conversation().submit("ended").cancel()
    blocked = helper.conversation()
    for number in range(5):
        blocked.submit(f"blocked {number}")
    assert claimed().conversation_id == blocked.pk
    ready = helper.conversation().submit("ready")
    Turn.objects.update(wake_sent_at=None)
    queue.clear()

    passes = [reconcile.run_pass(batch=2) for _ in range(3)]

    assert ([counts.woken for counts in passes], queue) == ([1, 0, 0], ["wake"])
    assert list(Turn.objects.exclude(wake_sent_at=None)) == [ready]


def test_the_cost_of_turns_is_their_sum_or_unknown(
    conversation: Conversation, turnkit_model: Callable[[Any], ScriptedModel]
):
    turnkit_model([call("safe", {"n": 1}), text("done"), text("done")])
    conversation.ask("please")
    conversation.ask("again")
    assert reads.cost(Turn.objects.all()) == Decimal("0.003")

    conversation.submit("and again")
    reconcile.recover(Turn.objects.get(status="pending").pk, "", 0)
    reconcile.recover(claimed().turn_id, Turn.objects.get(status="running").claim_token or "", 0, is_dead=True)
    assert reads.cost(Turn.objects.all()) is None
