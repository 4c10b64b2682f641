"""A worker that comes back after its turn was taken from it changes nothing."""

import threading

import pytest

from tests.faults.processes import Process, failed_jobs
from tests.faults.rescue import Script, has_ended, holder_pid, maintained_until, waking, with_settings
from tests.faults.rows import rows_of
from tests.testapp.fault_agents import fragile
from tests.testapp.models import Effect, Note
from tests.waiting import wait_until
from turnkit_django import failpoints
from turnkit_django.core.ids import new_token
from turnkit_django.engine import reconcile, runner
from turnkit_django.models import Turn
from turnkit_django.store import transitions
from turnkit_django.store.claims import Holder
from turnkit_django.testing import assert_clean, call, model_server, text

pytestmark = pytest.mark.timeout(120)

LEASE = 2


class Late(Script):
    """Does not answer the `nth` request before it is told to."""

    def __init__(self, tool: str, *, nth: int, **arguments: object) -> None:
        super().__init__(tool, **arguments)
        self._nth = nth
        self._count = 0
        self.asked, self.may_answer = threading.Event(), threading.Event()

    def __call__(self, request):
        self._count += 1
        answer = super().__call__(request)
        if self._count == self._nth:
            self.asked.set()
            assert self.may_answer.wait(60)
        return answer


def taken_over(turn: Turn, processes, ghost: Process) -> None:
    """Freeze the worker of the turn and have another one finish it, which then leaves: new work is the ghost's."""
    assert holder_pid(turn) == ghost.pid
    ghost.freeze()
    rescuer = processes.worker(queue="rescue")
    with waking("rescue"):
        maintained_until(lambda: has_ended(turn), lambda: rescuer.log)
    rescuer.end()


def comes_back_as_nobody(turn: Turn, ghost: Process, script: Script) -> None:
    """Let the ghost go on, give it new work, and see that it did that and left the old rows as they were."""
    before, effects = rows_of(turn.conversation), Effect.objects.count()
    ghost.thaw()
    later = fragile.conversation().submit("something new")
    wait_until(lambda: has_ended(later), lambda: ghost.log)
    assert later.status == "completed", later.error
    assert ghost.is_alive
    assert script.pids[-1] == ghost.pid
    assert rows_of(turn.conversation) == before
    assert Effect.objects.count() == effects + 1
    assert "Traceback" not in ghost.log
    assert failed_jobs() == []
    assert_clean()


@pytest.mark.parametrize("tool", ["charge_safe", "charge_unknown"])
def test_a_tool_result_that_comes_too_late_changes_nothing(processes, model_port, tool):
    script = Script(tool, gate="go")
    with model_server(script, port=model_port):
        turn = fragile.conversation().submit("charge me")
        ghost = processes.worker(**with_settings(LEASE_SECONDS=LEASE))
        wait_until(Note.objects.filter(name="ran").exists, lambda: ghost.log)
        assert holder_pid(turn) == ghost.pid
        ghost.freeze()
        Note.objects.create(name="go")
        taken_over(turn, processes, ghost)
        runs = Note.objects.filter(name="ran").count()
        assert (turn.status, runs) == ("completed", 2 if tool == "charge_safe" else 1)
        comes_back_as_nobody(turn, ghost, script)


@pytest.mark.parametrize("nth", [1, 2])
def test_a_model_answer_that_comes_too_late_changes_nothing(processes, model_port, nth):
    script = Late("charge_safe", nth=nth)
    with model_server(script, port=model_port) as model:
        turn = fragile.conversation().submit("charge me")
        ghost = processes.worker(**with_settings(LEASE_SECONDS=LEASE))
        wait_until(script.asked.is_set, lambda: ghost.log)
        taken_over(turn, processes, ghost)
        assert (turn.status, turn.unknown_attempts, len(model.requests)) == ("completed", 1, 3)
        script.may_answer.set()
        comes_back_as_nobody(turn, ghost, script)


@pytest.mark.parametrize("is_asleep", [True, False])
def test_a_model_answer_after_a_cancel_changes_nothing(processes, model_port, is_asleep):
    script = Late("charge_safe", nth=1)
    with model_server(script, port=model_port):
        turn = fragile.conversation().submit("charge me")
        ghost = processes.worker(**with_settings(LEASE_SECONDS=LEASE))
        wait_until(script.asked.is_set, lambda: ghost.log)
        if is_asleep:
            ghost.freeze()
        turn = turn.cancel()
        assert turn.status == "cancelled"
        script.may_answer.set()
        comes_back_as_nobody(turn, ghost, script)


class TakenOver:
    """At a point, what happens to a worker that is stopped there: another one claims its turn, and is lost too."""

    def __init__(self, point: str, ending: str) -> None:
        self._point, self._ending = point, ending
        self.is_over = False

    def __call__(self, point: str) -> None:
        if point != self._point or self.is_over:
            return
        self.is_over = True
        turn = Turn.objects.get()
        self._recover(turn)
        (claimed,) = transitions.claim(Holder("other:1:1", 60, (new_token(),)))
        if self._ending == "cancelled":
            turn.cancel()
        else:
            self._recover(claimed.turn)

    def _recover(self, turn: Turn) -> None:
        assert reconcile.recover(turn.pk, turn.claim_token, turn.attempts, is_dead=True) is not None
        Turn.objects.update(not_before=None)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("ending", ["dead again", "cancelled"])
@pytest.mark.parametrize("point", ["response_stored", "tool_returned", "result_stored", "responded"])
def test_a_ghost_of_two_claims_ago_is_a_ghost(turnkit_model, turnkit_drain, point, ending):
    """The next claim counts the revision up by one, as this worker's own write would have done."""
    batch = [call("charge_unknown", {"n": 1}), call("charge_unknown", {"n": 2})]
    model = turnkit_model(lambda request: text("done it") if request.messages[-1]["role"] == "tool" else batch)
    turn = fragile.conversation().submit("charge me twice")
    takeover = TakenOver(point, ending)
    failpoints.arm(takeover)
    try:
        assert runner.run_next()
    finally:
        failpoints.arm(None)
    assert takeover.is_over
    asked = len(model.requests)
    turnkit_drain()
    turn.refresh_from_db()
    assert turn.status == ("cancelled" if ending == "cancelled" else "completed")
    ran_by_ghost = 1 if point in {"tool_returned", "result_stored"} else 0
    assert Effect.objects.count() == (ran_by_ghost if ending == "cancelled" else 2)
    assert asked == 1
    assert_clean()
