"""Waits and ends of several turns at once, on connections of their own: no deadlock, nothing lost, no cycle."""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.concurrency.threads import Held, closing, wide_pool
from tests.testapp.agents import helper
from turnkit_django.engine import runner
from turnkit_django.errors import StateError
from turnkit_django.models import Turn, Wait
from turnkit_django.store import locks, transitions
from turnkit_django.store.claims import Claim
from turnkit_django.testing import ScriptedModel, assert_clean, drain, text

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_deadlock")]


@pytest.fixture(autouse=True)
def model(turnkit_model: Callable[[Any], ScriptedModel]) -> ScriptedModel:
    return turnkit_model(lambda request: text("done"))


def submitted() -> Turn:
    return helper.conversation().submit("please")


def counts(*turns: Turn) -> list[tuple[str, int, int]]:
    rows = [Turn.objects.get(pk=turn.pk) for turn in turns]
    return [(row.status, row.pending_dependencies, row.open_waiters) for row in rows]


def claim_next() -> Claim:
    (one,) = transitions.claim(runner.holder())
    return one.claim


def complete(claim: Claim) -> None:
    transitions.complete(claim, text="done", reply=None)


def test_of_two_opposite_waits_at_once_exactly_one_is_accepted():
    first, second = submitted(), submitted()

    theirs = Held(lambda: first.wait_for(second)).and_behind_it(lambda: second.wait_for(first))

    with pytest.raises(StateError, match="cycle"):
        theirs.result()
    assert list(Wait.objects.values_list("turn", "target")) == [(first.pk, second.pk)]
    assert drain() == 2
    assert_clean()


def test_waits_that_are_attached_one_behind_the_other_are_both_counted():
    target, first, second = submitted(), submitted(), submitted()

    theirs = Held(lambda: first.wait_for(target)).and_behind_it(lambda: second.wait_for(target))

    assert theirs.exception() is None
    assert counts(target, first, second) == [("pending", 0, 2), ("waiting", 1, 0), ("waiting", 1, 0)]
    assert drain() == 3
    assert_clean()


def test_a_wait_behind_the_end_of_its_target_finds_it_ended():
    target, waiter = submitted(), submitted()
    claim = claim_next()

    theirs = Held(lambda: complete(claim), point="complete.written").and_behind_it(lambda: waiter.wait_for(target))

    assert theirs.exception() is None
    assert counts(target, waiter) == [("completed", 0, 0), ("pending", 0, 0)]
    assert drain() == 1
    assert_clean()


@pytest.mark.parametrize("end", ["completed", "cancelled"])
def test_an_end_behind_a_wait_for_it_starts_over_and_releases_the_waiter(end: str):
    target, waiter = submitted(), submitted()
    claim = claim_next()
    ends: dict[str, Callable[[], object]] = {"completed": lambda: complete(claim), "cancelled": target.cancel}

    theirs = Held(lambda: waiter.wait_for(target)).and_behind_it(ends[end])

    assert theirs.exception() is None
    assert counts(target, waiter) == [(end, 0, 0), ("pending", 0, 0)]
    assert drain() == 1
    assert_clean()


def test_the_ends_of_two_targets_at_once_release_the_waiter_once():
    first, second, waiter = submitted(), submitted(), submitted()
    waiter.wait_for(first, second)
    claims = [claim_next(), claim_next()]

    theirs = Held(lambda: complete(claims[0]), point="complete.written").and_behind_it(lambda: complete(claims[1]))

    assert theirs.exception() is None
    assert counts(waiter, first, second) == [("pending", 0, 0), ("completed", 0, 0), ("completed", 0, 0)]
    assert drain() == 1
    assert_clean()


@pytest.mark.parametrize("is_cancel_first", [True, False])
def test_a_cancel_of_the_waiter_against_the_end_of_its_target(is_cancel_first: bool):
    target, waiter = submitted(), submitted()
    waiter.wait_for(target)
    claim = claim_next()
    if is_cancel_first:
        theirs: Future[object] = Held(waiter.cancel).and_behind_it(lambda: complete(claim))
    else:
        held = Held(lambda: complete(claim), point="complete.written")
        theirs = held.and_behind_it(waiter.cancel)

    assert theirs.exception() is None
    assert counts(waiter, target) == [("cancelled", 0, 0), ("completed", 0, 0)]
    assert drain() == 0
    assert_clean()


def test_a_submission_behind_the_end_of_its_last_target_is_not_left_waiting():
    target, waiter = submitted(), helper.conversation().prepare("please")
    waiter.wait_for(target)

    theirs = Held(target.cancel).and_behind_it(waiter.submit)

    assert theirs.result().status == "pending"
    assert drain() == 1
    assert_clean()


def test_a_wait_behind_a_claim_of_the_waiter_comes_too_late():
    waiter, target = submitted(), submitted()

    theirs = Held(claim_next, point="claim_due.written").and_behind_it(lambda: waiter.wait_for(target))

    with pytest.raises(StateError, match=f"{waiter.pk} is running"):
        theirs.result()
    assert counts(target) == [("pending", 0, 0)]


def test_a_claim_passes_over_turns_that_are_being_joined():
    waiter, target, free = submitted(), submitted(), submitted()

    with Held(lambda: waiter.wait_for(target)).open():
        assert [one.turn for one in transitions.claim(runner.holder(), spare=2)] == [free]

    assert counts(waiter) == [("waiting", 1, 0)]


def test_an_end_does_not_wait_for_the_row_of_the_next_turn_in_its_lane():
    conversation = helper.conversation()
    first, second, target = conversation.submit("one"), conversation.submit("two"), submitted()

    with Held(lambda: second.wait_for(target)).open():
        first.cancel()

    assert counts(first, second) == [("cancelled", 0, 0), ("waiting", 1, 0)]
    assert drain() == 2
    assert_clean()


def test_two_retries_at_once_make_one_turn(turnkit_model: Callable[[Any], ScriptedModel]):
    turnkit_model([{"error": {"status": 400}}, text("done")])
    turn = submitted()
    assert drain() == 1
    turn.refresh_from_db()

    theirs = Held(turn.retry).and_behind_it(lambda: Turn.objects.get(pk=turn.pk).retry())

    assert theirs.result().retry_of_id == turn.pk
    assert Turn.objects.count() == 2
    assert drain() == 1
    assert_clean()


def test_a_move_starts_over_as_long_as_waits_are_attached_before_its_locks(monkeypatch: pytest.MonkeyPatch):
    target, waiters = submitted(), [submitted() for _ in range(3)]
    misses = iter([*waiters, None])
    whole = locks._require_all

    def attach_first(turn: Turn, found: Any) -> None:
        whole(turn, found)
        if turn.pk == target.pk and (waiter := next(misses)) is not None:
            raise locks.MissedNeighbour(waiter.pk)

    waiters[0].wait_for(target)
    monkeypatch.setattr(locks, "_require_all", attach_first)
    target.cancel()

    assert list(misses) == []
    assert counts(target, waiters[0]) == [("cancelled", 0, 0), ("pending", 0, 0)]


def test_a_crowd_that_joins_ends_and_cancels_at_once_keeps_every_count(model: ScriptedModel):
    """Each turn is told to wait for two others while workers end what is due and people cancel."""
    turns = [submitted() for _ in range(12)]
    begin = threading.Event()

    def join(index: int) -> None:
        begin.wait(30)
        for step in (1, 5):
            with contextlib.suppress(StateError):
                turns[index].wait_for(turns[(index + step) % len(turns)].pk)

    def end(index: int) -> None:
        begin.wait(30)
        if index:
            turns[index * 3].cancel()
        else:
            while runner.run_next():
                pass

    with wide_pool(20), ThreadPoolExecutor(16) as pool:
        work = [pool.submit(closing(lambda each=each: join(each))) for each in range(12)]
        work += [pool.submit(closing(lambda each=each: end(each))) for each in range(3)]
        begin.set()
        for each in work:
            each.result(60)
    drain()

    assert set(Turn.objects.values_list("status", flat=True)) <= {"completed", "cancelled"}
    assert set(Turn.objects.values_list("pending_dependencies", "open_waiters")) == {(0, 0)}
    assert_clean()
