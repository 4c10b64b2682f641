"""Connections that a fork has doubled, and connections that die."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connection

from tests.faults.processes import all_bytes, failed_jobs
from tests.faults.rescue import Script, has_ended, maintained_until, with_settings
from tests.faults.test_ghosts import Late
from tests.testapp.fault_agents import fragile
from tests.testapp.models import Effect, Note
from tests.waiting import wait_until
from turnkit_django.models import Turn
from turnkit_django.testing import assert_clean, model_server, text

pytestmark = pytest.mark.timeout(120)

POOL_OF_ONE = {"OPTIONS": {"pool": {"min_size": 1, "max_size": 1, "timeout": 5}}}
POOL = {"OPTIONS": {"pool": {"min_size": 2, "max_size": 4, "timeout": 5}}}
UNCHECKED_POOL = POOL | {"CONN_HEALTH_CHECKS": False}
KEPT = {"OPTIONS": {}, "CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": False}
CLOSED = {"OPTIONS": {}, "CONN_MAX_AGE": 0}


def on(connection_settings: dict[str, object]) -> dict[str, str]:
    return {"TURNKIT_TEST_CONNECTION": json.dumps(connection_settings), "PGAPPNAME": "victim"}


def terminate_all() -> int:
    """End every connection of the worker, as a restart or a proxy does; how many."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'victim'")
        return len(cursor.fetchall())


@pytest.mark.parametrize("connection_settings", [POOL_OF_ONE, KEPT, CLOSED], ids=["pool of one", "kept", "closed"])
def test_a_forking_worker_runs_ten_turns_and_no_child_uses_its_parents_connection(
    processes, model_port, connection_settings
):
    script = Script("charge_safe")
    with model_server(script, port=model_port) as model:
        options = ("--worker-class", "tests.testapp.workers.ForkingWorker")
        worker = processes.worker(*options, **on(connection_settings))
        for number in range(1, 11):
            turn = fragile.conversation().submit("charge me")
            wait_until(lambda: has_ended(turn), lambda: worker.log)  # noqa: B023
            assert turn.status == "completed", turn.error
            after = Note.objects.filter(name="after the fork")
            wait_until(lambda: after.count() == number, lambda: worker.log)  # noqa: B023
        assert len(model.requests) == 20
    parents = set(Note.objects.filter(name__endswith="the fork").values_list("pid", "backend"))
    children = set(Note.objects.filter(name="ran").values_list("pid", "backend"))
    assert {pid for pid, _backend in parents} == {worker.pid}
    assert len({pid for pid, _backend in children}) == 10
    assert worker.pid not in script.pids
    assert len(parents) == 1 or connection_settings is CLOSED
    assert not {backend for _pid, backend in parents} & {backend for _pid, backend in children}
    assert failed_jobs() == []
    assert not [word for word in ("OperationalError", "PoolTimeout", "Traceback") if word in worker.log], worker.log
    assert_clean()


@pytest.mark.parametrize(
    "connection_settings", [POOL, UNCHECKED_POOL, KEPT, CLOSED], ids=["pool", "unchecked pool", "kept", "closed"]
)
def test_connections_cut_during_a_model_call_cost_no_second_call(processes, model_port, connection_settings):
    script = Late("charge_unknown", nth=1)
    with model_server(script, port=model_port) as model:
        worker = processes.worker(**on(connection_settings))
        turn = fragile.conversation().submit("charge me")
        wait_until(script.asked.is_set, lambda: worker.log)
        terminate_all()
        script.may_answer.set()
        wait_until(lambda: has_ended(turn), lambda: worker.log)
        assert (turn.status, turn.attempts, turn.unknown_attempts) == ("completed", 0, 0), turn.error
        assert len(model.requests) == 2
        for _ in range(3):
            later = fragile.conversation().submit("and again")
            wait_until(lambda: has_ended(later), lambda: worker.log)  # noqa: B023
            assert later.status == "completed", later.error
    assert set(script.pids) == {worker.pid}
    assert Effect.objects.count() == 4
    assert failed_jobs() == []
    assert_clean()


@pytest.mark.parametrize(
    "connection_settings", [POOL, UNCHECKED_POOL, KEPT, CLOSED], ids=["pool", "unchecked pool", "kept", "closed"]
)
def test_connections_cut_during_a_tool_call_lose_no_result(processes, model_port, connection_settings, tmp_path):
    go = tmp_path / "go"
    script = Script("charge_and_listen", path=str(go))
    with model_server(script, port=model_port) as model:
        worker = processes.worker(**on(connection_settings))
        turn = fragile.conversation().submit("charge me")
        wait_until(Note.objects.filter(name="ran").exists, lambda: worker.log)
        assert terminate_all() > 0
        go.touch()
        wait_until(lambda: has_ended(turn), lambda: worker.log)
        assert len(model.requests) == 2
    assert (turn.status, turn.attempts) == ("completed", 0), turn.error
    assert turn.tool_executions.get().status == "completed"
    assert Note.objects.filter(name="ran").count() == 1
    assert_clean()


@contextmanager
def database_away() -> Iterator[None]:
    """The worker's connections are cut, and nobody gets a new one; this process keeps the one it has."""
    parameters = connection.get_connection_params()
    socket = Path(parameters.get("host") or "/", f".s.PGSQL.{parameters.get('port') or 5432}")
    if not socket.exists():
        pytest.skip("this PostgreSQL is not the embedded one")
    hidden = socket.rename(socket.with_suffix(".away"))
    try:
        terminate_all()
        yield
    finally:
        hidden.rename(socket)


@pytest.mark.parametrize("connection_settings", [KEPT, CLOSED], ids=["kept", "closed"])
def test_an_outage_that_outlasts_every_retry_costs_time_only(processes, model_port, connection_settings):
    asked, may_answer = threading.Event(), threading.Event()

    def answer(_request):
        asked.set()
        assert may_answer.wait(60)
        return text("whisper of the model")

    with model_server(answer, port=model_port) as model:
        worker = processes.worker(**on(connection_settings) | with_settings(LEASE_SECONDS=2))
        turn = fragile.conversation().submit("hi")
        wait_until(asked.is_set, lambda: worker.log)
        with database_away():
            may_answer.set()
            wait_until(lambda: "the worker failed" in worker.log, lambda: worker.log)
            wait_until(failed_jobs, lambda: worker.log)
            assert b"whisper" not in all_bytes()
        maintained_until(lambda: has_ended(turn), lambda: worker.log)
        assert (turn.status, turn.unknown_attempts, len(model.requests)) == ("completed", 1, 2)
        later = fragile.conversation().submit("and again")
        wait_until(lambda: has_ended(later), lambda: worker.log)
    assert worker.is_alive
    assert (later.status, later.attempts) == ("completed", 0)
    assert_clean()


def test_connections_cut_all_the_time_cost_time_only(processes, model_port):
    script = Script("charge_safe")
    is_over = threading.Event()

    def cut() -> None:
        try:
            for _ in range(60):
                if is_over.wait(0.05):
                    return
                terminate_all()
        finally:
            connection.close()

    with model_server(script, port=model_port) as model:
        settings = with_settings(LEASE_SECONDS=2, MAX_RECOVERIES=1000)
        worker = processes.worker(**on(POOL) | settings)
        turns = [fragile.conversation().submit(f"charge {number}") for number in range(6)]
        wait_until(lambda: script.pids, lambda: worker.log)
        storm = threading.Thread(target=cut)
        storm.start()
        try:
            maintained_until(lambda: all(has_ended(turn) for turn in turns), lambda: worker.log, seconds=60)
        finally:
            is_over.set()
            storm.join()
        assert model.violations == []
    assert {turn.status for turn in turns} == {"completed"}
    assert Effect.objects.count() == 6
    assert Turn.objects.filter(output_text="charged it").count() == 6
    assert worker.is_alive
    assert_clean()
