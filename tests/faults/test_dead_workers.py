"""Who is dead and who is only busy: by the lease of the claim, whatever names, registries and maintenance do."""

import signal

import pytest

from tests.faults.processes import CRASHED, Process, Processes, failed_jobs, redis
from tests.faults.rescue import Script, has_ended, holder_pid, maintained_until, with_settings
from tests.testapp.fault_agents import fragile
from tests.testapp.models import Note
from tests.waiting import wait_until
from turnkit_django.core.ids import new_token
from turnkit_django.engine import reconcile
from turnkit_django.models import Turn
from turnkit_django.models.querysets import ClockTime
from turnkit_django.store import transitions
from turnkit_django.store.claims import Holder
from turnkit_django.testing import assert_clean, model_server

pytestmark = pytest.mark.timeout(120)

QUICK = with_settings(LEASE_SECONDS=1)


def test_a_worker_that_computes_for_three_leases_keeps_its_turn(processes: Processes, model_port: int):
    """B28: maintenance looks all the time, and a second worker has nothing else to do."""
    script = Script("charge_and_compute", seconds=3)
    with model_server(script, port=model_port) as model:
        turn = fragile.conversation().submit("charge me")
        busy = processes.worker(**QUICK)
        wait_until(Note.objects.filter(name="ran").exists, lambda: busy.log)
        idle = processes.worker(**QUICK)
        assert holder_pid(turn) == busy.pid
        before = turn.lease_expires_at
        maintained_until(lambda: has_ended(turn), lambda: processes.logs)
        assert len(model.requests) == 2
    assert (turn.status, turn.output_text, turn.attempts) == ("completed", "charged it", 0)
    execution = turn.tool_executions.get()
    assert execution.completed_at > before, "it was over before its first lease"
    assert (execution.status, Note.objects.filter(name="ran").count()) == ("completed", 1)
    assert set(script.pids) == {busy.pid}
    assert idle.is_alive
    assert_clean()


def test_a_new_worker_of_the_same_name_does_not_make_the_work_of_the_dead_one_look_alive(
    processes: Processes, model_port: int
):
    """B35: its row in RQ's registry was cleaned up, and its name is heard of again."""
    script = Script("charge_safe")
    with model_server(script, port=model_port) as model:
        turn = fragile.conversation().submit("charge me")
        dead = processes.worker("--name", "w1", TURNKIT_CRASH_AT="tool_returned", **QUICK)
        assert dead.ended() == CRASHED, dead.log
        redis().delete("rq:worker:w1")
        redis().srem("rq:workers", "rq:worker:w1")
        new = processes.worker("--name", "w1", **QUICK)
        wait_until(lambda: redis().exists("rq:worker:w1"), lambda: new.log)
        maintained_until(lambda: has_ended(turn), lambda: new.log)
        assert len(model.requests) == 2
    assert (turn.status, turn.output_text, turn.attempts) == ("completed", "charged it", 1)
    assert script.pids == [dead.pid, new.pid]
    assert failed_jobs() == []
    assert_clean()


@pytest.mark.django_db(transaction=True)
def test_a_claim_is_its_token_and_not_the_name_of_its_holder(turnkit_model, turnkit_drain):
    """B35: in a container every process may be number 1 of the same host."""
    model = turnkit_model([])
    turns = [fragile.conversation().submit("charge me") for _ in range(2)]
    (dead,), (alive,) = (transitions.claim(Holder("pod:1:1", 60, (new_token(),))) for _ in turns)
    Turn.objects.update(lease_expires_at=ClockTime())

    assert transitions.renew([alive.claim], lease_seconds=60) == {alive.turn.pk}

    assert reconcile.run_pass(batch=10).recovered == 1
    statuses = dict(Turn.objects.values_list("pk", "status"))
    assert statuses == {dead.turn.pk: "pending", alive.turn.pk: "running"}
    transitions.complete(alive.claim, text="done", reply=None)
    turnkit_drain()
    assert_clean(model=model)


def left_by_a_dead_worker() -> Turn:
    turn = fragile.conversation().submit("charge me")
    assert transitions.claim(Holder("elsewhere:1:1", 0, (new_token(),)))
    return turn


def killed(reconciling: Process, *, is_blocked: bool) -> None:
    """Wait until it has died of itself, or let it die with its locks in hand."""
    if is_blocked:
        wait_until(lambda: "recover.written" in reconciling.log, lambda: reconciling.log)
        assert reconcile.run_pass(batch=10).recovered == 0  # it passes over what the other holds
        reconciling.send(signal.SIGKILL)
    assert reconciling.ended() == CRASHED, reconciling.log


@pytest.mark.parametrize("is_blocked", [False, True])
def test_maintenance_that_is_killed_in_the_middle_leaves_nothing_locked(processes: Processes, is_blocked: bool):
    """B35: no lock of a dead pass keeps the next one from its work."""
    turn = left_by_a_dead_worker()
    point = f"recover.written:1:{'block' if is_blocked else 'kill'}"
    killed(processes.start("turnkit_reconcile", TURNKIT_CRASH_AT=point), is_blocked=is_blocked)
    turn.refresh_from_db()
    assert (turn.status, turn.attempts) == ("running", 0)

    wait_until(lambda: reconcile.run_pass(batch=10).recovered == 1, "the dead pass still holds its locks")

    turn.refresh_from_db()
    assert (turn.status, turn.attempts) == ("pending", 1)
