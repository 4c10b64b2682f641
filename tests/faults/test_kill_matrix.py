"""SIGKILL of a real worker at every public point; another worker process finishes what it left."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import environment
from tests.faults.processes import CRASHED, Process, Processes, failed_jobs, redis, running
from tests.faults.rescue import Script, has_ended, maintained_until, waking
from tests.testapp.fault_agents import fragile
from tests.testapp.models import Effect, Note
from tests.waiting import wait_until
from turnkit_django import failpoints
from turnkit_django.engine import reconcile
from turnkit_django.models import Turn
from turnkit_django.testing import assert_clean, model_server

pytestmark = [pytest.mark.kill, pytest.mark.timeout(120)]

TOOLS = ("charge_safe", "charge_unknown")

# After the death at this point: how often the model is asked in all, how often the tool's body runs, and how many
# model calls have an unknown bill. `claimed` shares its commit with the reservation of the first model call, a tool's
# result with that of the next one.
EXPECTED = {
    ("claimed", "charge_safe"): (2, 1, 1),
    ("claimed", "charge_unknown"): (2, 1, 1),
    ("reserved", "charge_safe"): (2, 1, 1),
    ("reserved", "charge_unknown"): (2, 1, 1),
    ("responded", "charge_safe"): (3, 1, 1),
    ("responded", "charge_unknown"): (3, 1, 1),
    ("response_stored", "charge_safe"): (2, 1, 0),
    ("response_stored", "charge_unknown"): (2, 1, 0),
    ("tool_started", "charge_safe"): (2, 1, 0),
    ("tool_started", "charge_unknown"): (2, 0, 0),
    ("tool_returned", "charge_safe"): (2, 2, 0),
    ("tool_returned", "charge_unknown"): (2, 1, 0),
    ("result_stored", "charge_safe"): (2, 1, 1),
    ("result_stored", "charge_unknown"): (2, 1, 1),
    ("before_publish", "charge_safe"): (3, 1, 1),
    ("before_publish", "charge_unknown"): (3, 1, 1),
    # The same points of the last model call.
    ("reserved:2", "charge_safe"): (2, 1, 1),
    ("responded:2", "charge_safe"): (3, 1, 1),
}
INTERRUPTED = {("tool_started", "charge_unknown"), ("tool_returned", "charge_unknown")}
ENDED = ("published", "response_stored:2")


def test_the_matrix_names_every_public_point():
    points = {point.partition(":")[0] for point, _tool in EXPECTED} | {"submitted", *ENDED[:1]}
    assert points == set(failpoints.PUBLIC_POINTS)


@pytest.fixture(scope="module")
def rescuer(django_db_setup: None, model_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One worker for all cells, on a queue of its own, so that the doomed one is woken first."""
    folder: Path = tmp_path_factory.mktemp("rescuer")
    with running(folder, **environment(model_port)) as found:
        yield found.worker(queue="rescue")


def end_lease(turn: Turn) -> None:
    """As if its time had passed since the worker died."""
    turn.refresh_from_db()
    Turn.objects.filter(pk=turn.pk).update(lease_expires_at=turn.claimed_at)


def check_transcript(turn: Turn) -> None:
    facts = list(turn.messages.order_by("sequence").values_list("role", "kind"))
    assert facts == [("user", "text"), ("assistant", "tool_call"), ("tool", "tool_result"), ("assistant", "text")]
    assert (turn.status, turn.output_text) == ("completed", "charged it"), turn.error
    assert turn.usage.total_tokens == 240  # each stored answer counted once
    assert_clean()


def check_tool(turn: Turn, tool: str, *, runs: int, is_interrupted: bool, script: Script) -> None:
    execution = turn.tool_executions.get()
    assert execution.status == ("interrupted" if is_interrupted else "completed")
    assert ["is unknown" in told for told in script.told] == [is_interrupted] * len(script.told)
    ran = list(Note.objects.filter(name="ran").values_list("key", flat=True))
    assert ran == [f"turnkit:tool:{execution.pk}"] * runs
    assert Effect.objects.filter(name=tool).count() == min(runs, 1)


@pytest.mark.parametrize(("point", "tool"), EXPECTED)
def test_another_process_finishes_after_sigkill(processes, rescuer, model_port, point, tool):
    requests, runs, unknown = EXPECTED[point, tool]
    script = Script(tool, n=7)
    with model_server(script, port=model_port) as model:
        turn = fragile.conversation().submit("charge me")
        doomed = processes.worker(TURNKIT_CRASH_AT=point)
        assert doomed.ended() == CRASHED, doomed.log
        turn.refresh_from_db()
        assert (turn.status, int(turn.claimed_by.split(":")[-2])) == ("running", doomed.pid)
        reconcile.run_pass(batch=100)
        assert not has_ended(turn)
        assert turn.status == "running"  # nobody knows yet
        end_lease(turn)
        with waking("rescue"):
            maintained_until(lambda: has_ended(turn), lambda: rescuer.log)
    check_transcript(turn)
    check_tool(turn, tool, runs=runs, is_interrupted=(point, tool) in INTERRUPTED, script=script)
    assert (len(model.requests), model.violations) == (requests, [])
    assert (turn.attempts, turn.unknown_attempts) == (1, unknown)
    assert script.pids[-1] == rescuer.pid
    assert set(script.pids) <= {doomed.pid, rescuer.pid}
    assert failed_jobs("rescue") == []


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("point", ENDED)
def test_a_death_after_the_last_commit_leaves_nothing_to_repeat(processes, rescuer, model_port, point, tool):
    script = Script(tool)
    with model_server(script, port=model_port) as model:
        turn = fragile.conversation().submit("charge me")
        doomed = processes.worker(TURNKIT_CRASH_AT=point)
        assert doomed.ended() == CRASHED, doomed.log
        assert has_ended(turn)
        check_transcript(turn)
        with waking("rescue"):
            later = turn.conversation.submit("and again")
            maintained_until(lambda: has_ended(later), lambda: rescuer.log)
    assert (later.status, script.pids[-1]) == ("completed", rescuer.pid)
    assert (turn.attempts, len(model.requests)) == (0, 4)
    assert Effect.objects.count() == 2
    assert_clean()


@pytest.mark.parametrize("is_wake_up_lost", [False, True])
@pytest.mark.parametrize("tool", TOOLS)
def test_the_death_of_the_submitting_process_loses_nothing(processes, model_port, tool, is_wake_up_lost):
    submitter = processes.start("submit_lines", "fragile", TURNKIT_CRASH_AT="submitted")
    submitter.say("charge me")
    assert submitter.ended() == CRASHED, submitter.log
    turn = Turn.objects.get()
    assert (turn.status, turn.claimed_by) == ("pending", None)
    if is_wake_up_lost:
        redis().flushdb()
        Turn.objects.update(wake_sent_at=None)  # as after the life time of a wake-up
    script = Script(tool)
    with model_server(script, port=model_port) as model:
        worker = processes.worker()
        if is_wake_up_lost:
            maintained_until(lambda: has_ended(turn), lambda: worker.log)
        else:
            wait_until(lambda: has_ended(turn), lambda: worker.log)
    check_transcript(turn)
    check_tool(turn, tool, runs=1, is_interrupted=False, script=script)
    assert (turn.attempts, len(model.requests)) == (0, 2)
    assert set(script.pids) == {worker.pid} != {os.getpid()}


def test_the_same_through_litellm(processes: Processes, model_port: int):
    script = Script("charge_safe")
    real = {"TURNKIT_TEST_SETTINGS": "{}"}
    with model_server(script, port=model_port) as model:
        turn = fragile.conversation().submit("charge me")
        doomed = processes.worker(TURNKIT_CRASH_AT="tool_returned", **real)
        assert doomed.ended() == CRASHED, doomed.log
        end_lease(turn)
        second = processes.worker(**real)
        maintained_until(lambda: has_ended(turn), lambda: second.log)
    check_transcript(turn)
    check_tool(turn, "charge_safe", runs=2, is_interrupted=False, script=script)
    assert (len(model.requests), turn.attempts) == (2, 1)
    assert script.pids == [doomed.pid, second.pid]
    assert turn.cost is not None
    assert turn.cost > 0
