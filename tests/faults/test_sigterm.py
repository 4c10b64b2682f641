"""A worker that is told to stop claims nothing more, finishes or gives back what it holds, and exits."""

import signal
import time

import pytest
from django.db.models import F

from tests.faults.processes import failed_jobs
from tests.faults.rescue import Script, has_ended
from tests.faults.test_ghosts import Late
from tests.testapp.fault_agents import fragile
from tests.testapp.models import Effect, Note
from tests.waiting import wait_until
from turnkit_django import failpoints
from turnkit_django.engine import runner
from turnkit_django.models import Turn
from turnkit_django.testing import assert_clean, call, drain, model_server, text

pytestmark = pytest.mark.timeout(120)


def test_sigterm_lets_the_turn_finish_and_hands_the_rest_over(processes, model_port):
    """The second worker is woken through Redis, by the one that leaves: nobody reconciles."""
    script = Late("charge_unknown", nth=1)
    with model_server(script, port=model_port) as model:
        turn, waiting = (fragile.conversation().submit(f"charge {number}") for number in range(2))
        leaving = processes.worker()
        wait_until(script.asked.is_set, lambda: leaving.log)
        leaving.send(signal.SIGTERM)
        wait_until(lambda: "warm shut down" in leaving.log.lower(), lambda: leaving.log)
        script.may_answer.set()
        assert leaving.ended() == 0, leaving.log
        assert (has_ended(turn), has_ended(waiting)) == (True, False)
        assert (turn.status, turn.attempts, waiting.started_at) == ("completed", 0, None)
        second = processes.worker()
        wait_until(lambda: has_ended(waiting), lambda: second.log)
        assert len(model.requests) == 4
    assert (waiting.status, waiting.attempts) == ("completed", 0)
    assert Effect.objects.count() == 2
    assert failed_jobs() == []
    assert "Traceback" not in processes.logs
    assert_clean()


def test_sigterm_while_a_tool_runs_keeps_its_result(processes, model_port):
    with model_server(Script("charge_unknown", gate="go"), port=model_port) as model:
        turn = fragile.conversation().submit("charge me")
        leaving = processes.worker()
        wait_until(Note.objects.filter(name="ran").exists, lambda: leaving.log)
        leaving.send(signal.SIGTERM)
        wait_until(lambda: "warm shut down" in leaving.log.lower(), lambda: leaving.log)
        Note.objects.create(name="go")
        assert leaving.ended() == 0, leaving.log
        assert len(model.requests) == 2
    assert has_ended(turn)
    assert (turn.status, turn.attempts) == ("completed", 0)
    assert turn.tool_executions.get().status == "completed"
    assert_clean()


def test_sigterm_of_an_idle_worker_ends_it(processes):
    leaving = processes.worker()
    wait_until(lambda: "Listening on" in leaving.log, lambda: leaving.log)
    leaving.send(signal.SIGTERM)
    assert leaving.ended() == 0, leaving.log


def told_twice(leaving, number=signal.SIGTERM, *, until=None) -> None:
    """The second signal, which RQ ignores while the first is not a second old, means: now."""
    leaving.send(number)
    wait_until(lambda: "warm shut down" in leaving.log.lower(), lambda: leaving.log)
    heard = time.monotonic()
    wait_until(lambda: time.monotonic() - heard > 1.1)
    leaving.send(number)
    wait_until(until, lambda: leaving.log) if until else leaving.ended()
    assert "cold shut down" in leaving.log.lower()


def test_a_second_sigterm_during_a_model_call_gives_the_turn_back_at_once(processes, model_port):
    script = Late("charge_unknown", nth=1)
    with model_server(script, port=model_port) as model:
        turn = fragile.conversation().submit("charge me")
        leaving = processes.worker()
        wait_until(script.asked.is_set, lambda: leaving.log)
        told_twice(leaving)
        turn.refresh_from_db()
        assert (turn.status, turn.attempts, turn.unknown_attempts) == ("pending", 0, 1)
        script.may_answer.set()
        second = processes.worker()
        wait_until(lambda: has_ended(turn), lambda: second.log)
        assert len(model.requests) == 3
    assert (turn.status, turn.output_text) == ("completed", "charged it")
    assert Effect.objects.count() == 1
    assert_clean()


@pytest.mark.parametrize("tool", ["charge_safe", "charge_unknown"])
def test_a_second_sigterm_during_a_tool_call_leaves_its_outcome_unknown(processes, model_port, tool):
    """The signal's SystemExit comes out of the tool's body, but the tool has not failed: nobody knows what it did."""
    with model_server(Script(tool, gate="go"), port=model_port) as model:
        turn = fragile.conversation().submit("charge me")
        leaving = processes.worker()
        wait_until(Note.objects.filter(name="ran").exists, lambda: leaving.log)
        told_twice(leaving)
        Note.objects.create(name="go")
        turn.refresh_from_db()
        assert turn.status == "pending"
        second = processes.worker()
        wait_until(lambda: has_ended(turn), lambda: second.log)
        assert len(model.requests) == 2
    execution = turn.tool_executions.get()
    assert execution.status == ("completed" if tool == "charge_safe" else "interrupted"), execution.error
    assert Note.objects.filter(name="ran").count() == (2 if tool == "charge_safe" else 1)
    assert Effect.objects.count() == 1
    assert_clean()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("move", ["store_reply", "start_tool", "settle_tool", "complete"])
@pytest.mark.parametrize("place", ["before", "committed"])
def test_an_order_to_stop_is_obeyed_around_every_write(turnkit_model, move, place):
    model = turnkit_model(
        lambda request: text("done it") if request.messages[-1]["role"] == "tool" else call("charge_unknown")
    )
    turn = fragile.conversation().submit("charge me")

    def order(point: str) -> None:
        if point == f"{move}.{place}":
            failpoints.arm(None)
            raise SystemExit

    failpoints.arm(order)
    try:
        with pytest.raises(SystemExit):
            runner.run_next()
    finally:
        failpoints.arm(None)
    Turn.objects.update(lease_expires_at=F("claimed_at"))  # of a claim that could not be given back
    drain()
    turn.refresh_from_db()
    assert (turn.status, turn.output_text) == ("completed", "done it")
    assert Effect.objects.count() == (0 if (move, place) == ("start_tool", "committed") else 1)
    assert model.violations == []
    assert_clean()
