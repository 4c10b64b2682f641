"""The renewer: claims live as long as their process, and only another token is a loss."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest
from django.db import OperationalError

from tests.concurrency.threads import Held, closing
from tests.store.wire import open_wire
from tests.testapp.agents import helper
from tests.waiting import wait_until
from turnkit_django import Agent, register, tool
from turnkit_django.engine import heartbeat, reconcile, runner
from turnkit_django.errors import LostClaim
from turnkit_django.models import Turn
from turnkit_django.store import transitions
from turnkit_django.store.claims import Claim, Claimed
from turnkit_django.testing import assert_clean, call, text

database = pytest.mark.django_db(transaction=True)


def claimed() -> Claim:
    helper.conversation().submit("please")
    (one,) = transitions.claim(runner.holder())
    return one.claim


def lease(claim: Claim) -> datetime:
    end = Turn.objects.get(pk=claim.turn_id).lease_expires_at
    assert end is not None
    return end


def lock(claim: Claim) -> object:
    return Turn.objects.select_for_update(no_key=True).get(pk=claim.turn_id)


@pytest.fixture
def quick_renewer(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewer that begins with the next claim and looks three times a second."""
    settings.TURNKIT = {"LEASE_SECONDS": 1}
    monkeypatch.setattr(heartbeat, "_thread", None)


@pytest.fixture
def again_and_again() -> Iterator[Callable[[], None]]:
    """Begin to renew without a pause, in another thread, as the renewer does when it is behind."""
    stop = threading.Event()

    def renew() -> None:
        while not stop.is_set():
            heartbeat.renew_all()

    with ThreadPoolExecutor(1) as pool:
        yield lambda: pool.submit(closing(renew)) and None
        stop.set()


@database
def test_one_pass_renews_all_claims_of_the_process():
    first, second = claimed(), claimed()
    before = lease(first), lease(second)

    with heartbeat.holding(first, lease_seconds=60), heartbeat.holding(second, lease_seconds=60):
        assert heartbeat.renew_all()

    assert (lease(first) > before[0], lease(second) > before[1]) == (True, True)
    assert heartbeat.tokens() == frozenset()


@database
def test_a_renewal_does_not_count_as_a_write_of_the_worker():
    claim = claimed()
    with heartbeat.holding(claim, lease_seconds=60):
        heartbeat.renew_all()

    assert Turn.objects.get().revision == claim.revision


@database
def test_a_row_that_somebody_locks_delays_no_other_lease_and_is_renewed_when_it_is_free(
    again_and_again: Callable[[], None],
):
    locked, free = claimed(), claimed()
    with heartbeat.holding(locked, lease_seconds=1) as held, heartbeat.holding(free, lease_seconds=1):
        with Held(lambda: lock(locked)).open():
            before = lease(locked)
            again_and_again()
            for _ in range(3):  # not only in the first pass
                last = lease(free)
                wait_until(lambda: lease(free) != last, "the free row is not renewed")  # noqa: B023
            assert lease(locked) == before
        wait_until(lambda: lease(locked) != before, "the row that was locked is not renewed")

        assert not held.is_lost


def cancelled(claim: Claim) -> None:
    Turn.objects.get(pk=claim.turn_id).cancel()


def recovered(claim: Claim) -> None:
    assert reconcile.recover(claim.turn_id, claim.token, 0, is_dead=True)


def taken(claim: Claim) -> None:
    recovered(claim)
    assert transitions.claim(runner.holder())


def gone(claim: Claim) -> None:
    Turn.objects.all().delete()


@database
@pytest.mark.parametrize("how", [cancelled, recovered, taken, gone])
def test_a_read_that_shows_another_token_is_a_loss(how: Callable[[Claim], None]):
    claim = claimed()
    with heartbeat.holding(claim, lease_seconds=60) as held:
        held.require()
        how(claim)
        assert heartbeat.renew_all()

        assert held.is_lost
        with pytest.raises(LostClaim, match=claim.turn_id):
            held.require()


def test_a_claim_that_could_not_be_renewed_for_a_lease_starts_nothing_new():
    held = heartbeat.Held(Claim("turn_x", "conv_x", "turn_x", "t" * 32, 1, "helper"), lease_seconds=60)
    held.require()
    held.renewed_at -= 61

    with pytest.raises(LostClaim, match="could not be renewed in time"):
        held.require()
    held.wrote(held.claim.after_write())
    held.require()


@database
def test_a_broken_connection_is_repeated_and_no_loss():
    claim = claimed()
    before = lease(claim)
    with heartbeat.holding(claim, lease_seconds=60) as held, open_wire() as wire:
        wire.cut_next("unsent", "unheard")
        assert heartbeat.renew_all()

    assert (len(wire.cuts), held.is_lost, lease(claim) > before) == (2, False, True)


@database
def test_the_renewer_outlives_database_errors(quick_renewer: None, caplog: pytest.LogCaptureFixture):
    claim = claimed()
    with open_wire() as wire:
        # Three errors in a row end one pass; renewers of earlier tests may take some of them.
        wire.cut_next(*["unsent"] * 7)
        with heartbeat.holding(claim, lease_seconds=60) as held:
            wait_until(lambda: not wire.left, "the renewer gave up")
            before = lease(claim)
            wait_until(lambda: lease(claim) > before, "the renewer died")

            held.require()
    assert "lease.not_renewed" in {getattr(record, "event", "") for record in caplog.records}


@database
def test_the_lease_is_renewed_while_a_model_call_takes_its_time(
    quick_renewer: None, turnkit_model: Callable[[Any], Any]
):
    def slow(request: Any) -> Any:
        claim = Turn.objects.get().lease_expires_at
        wait_until(lambda: Turn.objects.get().lease_expires_at > claim, "not renewed")
        assert reconcile.run_pass(batch=10).total == 0
        return text("done")

    model = turnkit_model(slow)
    helper.conversation().submit("please")

    assert runner.run_next()
    assert Turn.objects.get().status == "completed"
    assert_clean(model=model)


ran: list[str] = []
others: list[Claimed] = []


@tool
def outlast(is_taken: bool) -> str:
    """Work for longer than the lease lives, until somebody else has the turn if it is taken."""
    ran.append("outlast")
    wait_until(Turn.objects.expired().exists, "the lease was renewed")
    if is_taken:
        assert reconcile.run_pass(batch=10).recovered == 1
        Turn.objects.update(not_before=None)
        others.extend(transitions.claim(runner.holder()))
    return "late"


@tool
def effect() -> str:
    """Have an effect."""
    ran.append("effect")
    return "done"


def refused(*_: object, **__: object) -> None:
    raise OperationalError("connection refused")


@database
@pytest.mark.parametrize("is_taken", [True, False])
def test_a_worker_that_cannot_renew_starts_nothing_more_unless_a_write_shows_that_it_still_has_the_turn(
    quick_renewer: None, turnkit_model: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch, is_taken: bool
):
    """B28, with a heartbeat that cannot reach the database."""
    ran.clear()
    others.clear()
    monkeypatch.setattr(transitions, "renew", refused)
    agent = register(Agent(name="cut_off", model="openai/gpt-5-mini", tools=[outlast, effect]))
    model = turnkit_model([[call("outlast", {"is_taken": is_taken}), call("effect")], text("done")])
    turn = agent.conversation().submit("please")
    assert runner.run_next()
    assert ran == (["outlast"] if is_taken else ["outlast", "effect"])

    for one in others:
        runner.run_claimed(one)
    turn.refresh_from_db()
    outcomes = list(turn.tool_executions.order_by("ordinal").values_list("status", flat=True))
    assert (turn.status, ran) == ("completed", ["outlast", "effect"])
    assert outcomes == ["interrupted" if is_taken else "completed", "completed"]
    assert_clean(model=model)


@pytest.mark.django_db
def test_no_renewer_runs_for_a_turn_inside_a_tests_transaction(
    quick_renewer: None, turnkit_model: Callable[[Any], Any]
):
    turnkit_model([text("done")])

    assert helper.conversation().ask("please").status == "completed"
    assert heartbeat._thread is None
