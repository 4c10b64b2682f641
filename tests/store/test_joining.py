"""Waits between turns: what is refused, what is counted, and who is released by whose end."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from tests.events.recording import heard, types
from tests.testapp.agents import helper
from turnkit_django import Agent, register
from turnkit_django.engine import reconcile, runner
from turnkit_django.errors import InputError, StateError
from turnkit_django.models import Message, Turn, Wait
from turnkit_django.models.querysets import ClockTime
from turnkit_django.store import reads, transitions
from turnkit_django.store.locks import Locks, MissedNeighbour
from turnkit_django.testing import Crash, ScriptedModel, assert_clean, crash_at, drain, text

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("queue")]

UseModel = Callable[[Any], ScriptedModel]


def submitted() -> Turn:
    return helper.conversation().submit("please")


def prepared() -> Turn:
    return helper.conversation().prepare("please")


def stored(turn: Turn) -> Turn:
    return Turn.objects.get(pk=turn.pk)


def counts(*turns: Turn) -> list[tuple[str, int, int]]:
    """Of each turn: its status, what it waits for, and who waits for it."""
    rows = [stored(turn) for turn in turns]
    return [(row.status, row.pending_dependencies, row.open_waiters) for row in rows]


def edges() -> list[tuple[str, str]]:
    return list(Wait.objects.order_by("turn", "ordinal").values_list("turn_id", "target_id"))


def run_one(model: UseModel, *script: Any) -> None:
    model(list(script) or text("done"))
    assert runner.run_next()


# Attaching


def test_a_submitted_turn_waits_at_once_and_both_sides_are_counted():
    target, other, waiter = submitted(), submitted(), submitted()

    assert waiter.wait_for(target, other.pk) is waiter

    assert (waiter.status, waiter.pending_dependencies, waiter.has_wait_input) == ("waiting", 2, True)
    assert counts(target, other) == [("pending", 0, 1), ("pending", 0, 1)]
    assert edges() == [(waiter.pk, target.pk), (waiter.pk, other.pk)]


def test_a_prepared_turn_waits_when_it_is_submitted_and_nobody_is_woken(queue: list[str]):
    target, waiter = submitted(), prepared()

    assert waiter.wait_for(target).status == "pending"
    assert waiter.submit().status == "waiting"

    assert queue == ["wake"]
    assert (waiter.submitted_at is not None, waiter.wake_sent_at) == (True, None)


def test_a_turn_prepared_under_a_key_waits_when_it_is_submitted_under_it():
    conversation, target = helper.conversation(), submitted()
    waiter = conversation.prepare("please", key="k").wait_for(target)

    assert conversation.submit("please", key="k") == waiter
    assert counts(waiter) == [("waiting", 1, 0)]


def test_a_turn_whose_targets_have_ended_is_submitted_as_any_other(turnkit_model: UseModel):
    target, waiter = submitted(), prepared()
    waiter.wait_for(target)
    run_one(turnkit_model)

    assert counts(waiter) == [("pending", 0, 0)]
    assert waiter.submit().status == "pending"


def test_naming_a_target_again_changes_nothing():
    target, waiter = submitted(), submitted()

    waiter.wait_for(target, target)
    waiter.wait_for(target.pk)

    assert counts(waiter, target) == [("waiting", 1, 0), ("pending", 0, 1)]
    assert len(edges()) == 1


def test_an_ended_target_counts_as_there(turnkit_model: UseModel):
    target, waiter = submitted().cancel(), submitted()

    waiter.wait_for(target)

    assert counts(waiter, target) == [("pending", 0, 0), ("cancelled", 0, 0)]
    assert waiter.has_wait_input
    assert edges() == [(waiter.pk, target.pk)]


def test_waits_keep_the_order_in_which_they_were_asked_for():
    targets, waiter = [submitted() for _ in range(8)], prepared()
    targets.reverse()

    waiter.wait_for(*targets[:5])
    waiter.wait_for(*targets[3:])

    rows = Wait.objects.order_by("ordinal")
    assert [wait.target for wait in rows] == targets
    assert [wait.ordinal for wait in rows] == list(range(1, 9))


def test_a_wait_goes_with_the_transaction_that_asked_for_it():
    target, waiter = submitted(), submitted()

    with transaction.atomic():
        waiter.wait_for(target)
        transaction.set_rollback(True)

    assert counts(waiter, target) == [("pending", 0, 0), ("pending", 0, 0)]
    assert edges() == []


def test_a_started_wait_tells_how_many_it_waits_for():
    targets, waiter = [submitted(), submitted()], submitted()

    with heard() as events:
        waiter.wait_for(*targets)
        waiter.wait_for(*targets)

    assert [(event.type, event.turn_id, event.as_dict()["count"]) for event in events] == [
        ("turn.waiting", waiter.pk, 2)
    ]


# Refusals


def refused(waiter: Turn, *targets: Turn | str, match: str) -> None:
    before = (counts(waiter), edges())
    with pytest.raises(StateError, match=match):
        waiter.wait_for(*targets)
    assert (counts(waiter), edges()) == before


def test_a_turn_does_not_wait_for_itself():
    waiter = submitted()

    refused(waiter, waiter, match=f"{waiter.pk} cannot wait for {waiter.pk}: it is itself")


def test_a_target_that_nobody_runs_is_refused():
    target = prepared()

    refused(submitted(), target, match=f"{target.pk}, which is pending and was not submitted: submit it first")


def test_unfinished_work_of_the_same_conversation_is_refused():
    conversation = helper.conversation()
    first, second = conversation.submit("one"), conversation.submit("two")

    refused(second, first, match=f"{first.pk}, which is pending in the same conversation {conversation.pk}")
    first.cancel()
    assert second.wait_for(first).status == "pending"


def test_a_target_that_is_not_stored_is_refused():
    refused(submitted(), submitted(), "turn_nowhere", match="cannot wait for turn_nowhere: not in the database")


def test_one_target_that_is_refused_refuses_the_whole_call():
    target, waiter = submitted(), submitted()

    refused(waiter, target, waiter, match="itself")
    assert counts(target) == [("pending", 0, 0)]


def test_a_turn_that_was_started_cannot_be_told_to_wait(turnkit_model: UseModel):
    target, waiter = submitted(), submitted()
    run_one(turnkit_model)
    parked = submitted()
    run_one(turnkit_model)

    refused(target, waiter, match=f"{target.pk} is completed; only a pending turn that nobody has started")
    turnkit_model([{"error": {"status": 429, "retry_after": 600}}])
    assert runner.run_next()
    refused(parked, target, match=f"{parked.pk} is waiting")


def test_a_turn_that_lost_its_worker_cannot_be_told_to_wait(turnkit_model: UseModel):
    waiter = submitted()
    turnkit_model(text("done"))
    with pytest.raises(Crash), crash_at("claimed"):
        runner.run_next()
    row = stored(waiter)
    reconcile.recover(row.pk, row.claim_token or "", 0, is_dead=True)

    refused(waiter, submitted(), match=f"{waiter.pk} was started")


@pytest.mark.parametrize(("targets", "got"), [((), "got none"), ((7,), r"got 7 \(int\)"), ((None,), "got None")])
def test_what_is_no_turn_is_refused(targets: tuple[Any, ...], got: str):
    waiter = submitted()

    with pytest.raises(InputError, match=f"{waiter.pk}: expected .*{got}"):
        waiter.wait_for(*targets)


def test_a_turn_that_is_not_stored_is_named():
    waiter, target = submitted(), submitted()
    waiter.conversation.delete()

    with pytest.raises(Turn.DoesNotExist, match=f"{waiter.pk} is not in the database"):
        waiter.wait_for(target)


# Cycles


def test_two_turns_do_not_wait_for_each_other():
    first, second = submitted(), submitted()
    first.wait_for(second)

    refused(second, first, match=f"{second.pk} cannot wait for {first.pk}: that would close a cycle")


def test_a_wait_that_closes_a_longer_cycle_is_refused():
    first, second, third, free = (submitted() for _ in range(4))
    first.wait_for(second)
    second.wait_for(third)

    refused(third, free, first, match="cycle")
    assert third.wait_for(free).status == "waiting"


def test_a_diamond_is_no_cycle():
    bottom, left, right, top = (submitted() for _ in range(4))
    left.wait_for(bottom)
    right.wait_for(bottom)

    assert top.wait_for(left, right, bottom).pending_dependencies == 3
    assert counts(bottom) == [("pending", 0, 3)]


def test_a_cycle_through_a_lane_is_refused_until_its_link_has_ended():
    mine, other = submitted(), helper.conversation()
    ahead, queued = other.submit("one"), other.submit("two")
    ahead.wait_for(mine)

    refused(mine, queued, match=f"{mine.pk} cannot wait for {queued.pk}: that would close a cycle")
    queued.cancel()
    assert mine.wait_for(queued).status == "pending"
    refused(mine, ahead, match="cannot wait")


def test_a_prepared_turn_of_a_lane_counts_for_cycles_too():
    mine, other = submitted(), helper.conversation()
    other.prepare("later").wait_for(mine)
    queued = other.submit("now")

    refused(mine, queued, match="cycle")


def test_a_wait_for_an_ended_turn_is_no_link_of_a_cycle():
    first, second = submitted(), submitted()
    first.wait_for(second)
    second.cancel()

    assert counts(first) == [("pending", 0, 0)]
    assert submitted().wait_for(first, second).pending_dependencies == 1


# Ends of targets


def completed(target: Turn, model: UseModel) -> None:
    run_one(model)


def failed(target: Turn, model: UseModel) -> None:
    run_one(model, {"error": {"status": 400}})


def cancelled(target: Turn, model: UseModel) -> None:
    target.cancel()


def given_up(target: Turn, model: UseModel) -> None:
    Turn.objects.filter(pk=target.pk).update(deadline_at=ClockTime())
    assert reconcile.run_pass(batch=10).overdue == 1


def killed(target: Turn, model: UseModel) -> None:
    model(text("done"))
    with pytest.raises(Crash), crash_at("claimed"):
        runner.run_next()
    row = stored(target)
    transitions.recover(row.pk, token=row.claim_token or "", max_recoveries=0, seconds=1, is_dead=True)


@pytest.mark.parametrize("end", [completed, failed, cancelled, given_up, killed])
def test_every_end_of_the_last_target_makes_the_waiter_pending_and_wakes_a_worker(
    end: Callable[[Turn, UseModel], None], turnkit_model: UseModel, queue: list[str]
):
    target, waiter = submitted(), submitted()
    waiter.wait_for(target)
    queue.clear()

    with heard() as events:
        end(target, turnkit_model)

    assert counts(target, waiter) == [(stored(target).status, 0, 0), ("pending", 0, 0)]
    assert stored(target).is_terminal
    assert (types(events).count("turn.ready"), queue) == (1, ["wake"])
    assert stored(waiter).wake_sent_at is not None
    turnkit_model(text("done"))
    assert drain() == 1
    assert_clean()


def test_a_waiter_goes_on_with_the_last_of_its_targets_only(turnkit_model: UseModel):
    targets, waiter = [submitted(), submitted(), submitted()], submitted()
    waiter.wait_for(*targets)

    for left, target in zip((2, 1, 0), targets, strict=True):
        target.cancel()
        assert counts(waiter) == [("waiting" if left else "pending", left, 0)]


def test_one_end_releases_all_who_wait_for_it():
    target, waiters = submitted(), [submitted() for _ in range(3)]
    for waiter in waiters:
        waiter.wait_for(target)
    assert counts(target) == [("pending", 0, 3)]

    target.cancel()

    assert counts(*waiters) == [("pending", 0, 0)] * 3


def test_a_cancelled_waiter_releases_its_own_waiters_and_leaves_its_targets_as_they_were(turnkit_model: UseModel):
    target, middle, last = submitted(), submitted(), submitted()
    middle.wait_for(target)
    last.wait_for(middle)

    middle.cancel()

    assert counts(target, middle, last) == [("pending", 0, 0), ("cancelled", 0, 0), ("pending", 0, 0)]
    turnkit_model(text("done"))
    assert drain() == 2
    assert counts(middle) == [("cancelled", 0, 0)]
    assert_clean()


def test_a_paused_waiter_is_counted_down_and_stays_paused():
    target, waiter = submitted(), submitted()
    waiter.wait_for(target)
    Turn.objects.filter(pk=waiter.pk).update(status="paused")

    target.cancel()

    assert counts(waiter) == [("paused", 0, 0)]


def test_a_waiter_whose_time_has_not_come_waits_for_it():
    target, waiter = submitted(), submitted()
    waiter.wait_for(target)
    Turn.objects.filter(pk=waiter.pk).update(not_before=ClockTime() + timedelta(hours=1))

    target.cancel()

    assert counts(waiter) == [("waiting", 0, 0)]
    Turn.objects.filter(pk=waiter.pk).update(not_before=ClockTime())
    assert reconcile.run_pass(batch=10).readied == 1


def test_an_end_that_nobody_waits_for_looks_for_no_waits():
    target = submitted()

    with CaptureQueriesContext(connection) as captured:
        target.cancel()

    about_waits = [query["sql"] for query in captured.captured_queries if "turnkit_wait" in query["sql"]]
    assert len(about_waits) == 1
    assert "FOR NO KEY UPDATE" in about_waits[0]


# While it waits


def test_a_job_for_a_waiting_turn_does_nothing(turnkit_model: UseModel):
    target, waiter = submitted(), submitted()
    waiter.wait_for(target)
    model = turnkit_model([{"error": {"status": 429, "retry_after": 600}}])
    assert runner.run_next()

    assert not runner.run_next()

    assert (len(model.requests), reads.has_due()) == (1, False)
    assert counts(waiter) == [("waiting", 1, 0)]


def test_a_waiting_turn_has_no_lease_to_expire():
    target, waiter = submitted(), submitted()
    waiter.wait_for(target)

    counted = reconcile.run_pass(batch=10)

    assert (counted.recovered, counted.readied, counted.overdue) == (0, 0, 0)
    assert counts(waiter, target) == [("waiting", 1, 0), ("pending", 0, 1)]


def test_a_waiting_turn_past_its_deadline_fails_and_its_targets_no_longer_count_it(turnkit_model: UseModel):
    hasty = register(Agent(name="hasty_waiter", model="openai/gpt-5-mini", timeout=timedelta(microseconds=1)))
    target, waiter = submitted(), hasty.conversation().prepare("please")
    waiter.wait_for(target).submit()

    assert reconcile.run_pass(batch=10).overdue == 1

    assert counts(waiter, target) == [("failed", 0, 0), ("pending", 0, 0)]
    assert "timed out" in stored(waiter).error["message"]
    turnkit_model(text("done"))
    assert drain() == 1
    assert_clean()


def test_a_waiting_turn_that_nobody_started_holds_only_what_stands_behind_it(turnkit_model: UseModel):
    conversation, target = helper.conversation(), submitted()
    before, waiter, behind = (conversation.submit(each) for each in ("one", "two", "three"))
    waiter.wait_for(target)
    turnkit_model(text("done"))

    Turn.objects.filter(pk=target.pk).update(next_check_at=ClockTime() + timedelta(hours=1))
    while runner.run_next():
        pass

    assert [stored(turn).status for turn in (before, waiter, behind)] == ["completed", "waiting", "pending"]
    Turn.objects.filter(pk=target.pk).update(next_check_at=None)
    assert drain() == 3
    assert_clean()


def test_a_turn_that_waits_is_not_run_inline_until_its_targets_have_ended(turnkit_model: UseModel):
    target, waiter = submitted(), prepared()
    waiter.wait_for(target)

    with pytest.raises(StateError, match=f"{waiter.pk} waits for 1 turns that have not ended.*submit it"):
        waiter.run()
    assert counts(waiter) == [("pending", 1, 0)]

    target.cancel()
    model = turnkit_model([text("done")])
    assert waiter.run().status == "completed"
    assert "wait_results" in model.requests[0].messages[-1]["content"]


def test_an_inline_run_under_its_key_is_refused_too(turnkit_model: UseModel):
    conversation, target = helper.conversation(), submitted()
    waiter = conversation.prepare("please", key="k").wait_for(target)

    with pytest.raises(StateError, match=f"{waiter.pk} waits"):
        conversation.ask("please", key="k")
    assert Message.objects.filter(turn=waiter).count() == 1


# Erasure


def test_a_waiter_whose_targets_are_erased_goes_on_after_maintenance(turnkit_model: UseModel, queue: list[str]):
    target, other, waiter = submitted(), submitted(), submitted()
    waiter.wait_for(target, other)
    target.conversation.delete()
    assert reads.miscounted(limit=10) == [waiter.pk]

    reconcile.run_pass(batch=10)
    assert counts(waiter) == [("waiting", 1, 0)]

    other.conversation.delete()
    queue.clear()
    assert reconcile.run_pass(batch=10).readied == 1
    assert (counts(waiter), queue) == ([("pending", 0, 0)], ["wake"])
    turnkit_model(text("done"))
    assert drain() == 1
    assert (Message.objects.filter(turn=waiter).count(), stored(waiter).has_wait_input) == (2, False)
    assert_clean()


def test_a_count_that_is_right_is_left_alone():
    target, waiter = submitted(), submitted()
    waiter.wait_for(target)

    assert transitions.recount(waiter.pk) is None
    assert transitions.recount(target.pk) is None
    assert transitions.recount("turn_nowhere") is None


def test_an_approval_that_a_turn_waits_for_is_no_miscount():
    waiter = submitted()
    waiter.tool_executions.create(tool_name="refund", call_key="k", ordinal=0, arguments_text="{}", approval="required")
    Turn.objects.filter(pk=waiter.pk).update(status="waiting", pending_dependencies=1)

    assert transitions.recount(waiter.pk) is None
    assert counts(waiter) == [("waiting", 1, 0)]


def test_erased_waiters_keep_no_target_from_ending(turnkit_model: UseModel):
    target, waiter = submitted(), submitted()
    waiter.wait_for(target)
    waiter.conversation.delete()

    run_one(turnkit_model)

    assert counts(target) == [("completed", 0, 0)]
    assert_clean()


def test_an_end_that_finds_new_waiters_each_time_changes_nothing_and_says_so(monkeypatch: pytest.MonkeyPatch):
    tries: list[str] = []

    def miss(self: Locks, ids: list[str]) -> list[Turn]:
        tries.extend(ids)
        raise MissedNeighbour(f"{ids} are joined since a moment ago")

    turn = helper.conversation().submit("please")
    monkeypatch.setattr(Locks, "turns_with_waiters", miss)
    with pytest.raises(MissedNeighbour, match=turn.pk):
        turn.cancel()
    turn.refresh_from_db()
    assert (turn.status, 1 < len(tries) < 20) == ("pending", True)
