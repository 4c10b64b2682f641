"""A wake-up says "look": early, stray, lost, late or many, it changes nothing but the time."""

import json
import os
import pickle
import zlib
from datetime import timedelta

import pytest
from django.db import transaction
from django.db.models import F

from tests.faults.processes import all_bytes, failed_jobs, queued, redis
from tests.faults.rescue import Script, has_ended
from tests.testapp.fault_agents import fragile
from tests.testapp.models import Effect
from tests.waiting import wait_until
from turnkit_django.dispatch import RQDispatcher
from turnkit_django.engine import reconcile
from turnkit_django.models import Turn
from turnkit_django.testing import assert_clean, call, model_server, text

pytestmark = pytest.mark.timeout(120)

PASSED = timedelta(seconds=31)


def forget_wake_ups() -> None:
    """As if the life time of every wake-up had passed."""
    Turn.objects.update(wake_sent_at=F("wake_sent_at") - PASSED)


def hello(_request):
    return text("hello")


def test_no_wake_up_leaves_before_the_commit(processes, model_port):
    with model_server(hello, port=model_port) as model:
        worker = processes.worker()
        wait_until(lambda: redis().exists("rq:workers"), lambda: worker.log)
        with transaction.atomic():
            turn = fragile.conversation().submit("hi")
            prepared = fragile.conversation().prepare("ho").submit()
            assert queued() == []
            assert model.requests == []
        wait_until(lambda: has_ended(turn) and has_ended(prepared), lambda: worker.log)
    assert failed_jobs() == []
    assert_clean()


def test_no_wake_up_leaves_after_a_rollback(processes):
    with transaction.atomic():
        fragile.conversation().submit("hi")
        transaction.set_rollback(True)
    assert queued() == []
    assert not Turn.objects.exists()


def test_a_stray_wake_up_ends_quietly(processes):
    RQDispatcher().send_wake()
    said = processes.run("rqworker", "turnkit", "--burst")
    assert "Traceback" not in said
    assert (queued(), failed_jobs()) == ([], [])


@pytest.mark.parametrize("is_put_back", [False, True])
def test_a_job_that_was_popped_and_never_started_is_sent_again(processes, model_port, is_put_back):
    turn = fragile.conversation().submit("hi")
    popped = redis().lpop("rq:queue:turnkit")
    assert popped
    reconcile.run_pass(batch=100)
    assert queued() == []  # the first one may still be on its way
    forget_wake_ups()
    reconcile.run_pass(batch=100)
    assert len(queued()) == 1
    with model_server(hello, port=model_port) as model:
        processes.run("rqworker", "turnkit", "--burst")
        assert has_ended(turn)
        if is_put_back:
            redis().rpush("rq:queue:turnkit", popped)
            said = processes.run("rqworker", "turnkit", "--burst")
            assert "Traceback" not in said
        assert len(model.requests) == 1
    assert (turn.status, queued(), failed_jobs()) == ("completed", [], [])
    assert_clean()


def test_a_hundred_passes_over_a_long_queue_pile_up_no_wake_ups(processes):
    for number in range(20):
        fragile.conversation().submit(f"hi {number}")
    assert len(queued()) == 20
    forget_wake_ups()
    for _ in range(100):
        reconcile.run_pass(batch=100)
    assert len(queued()) <= 40


def test_passes_side_by_side_send_one_wake_up_for_a_turn(processes):
    for number in range(20):
        fragile.conversation().submit(f"hi {number}")
    redis().flushdb()
    forget_wake_ups()
    passes = [processes.start("turnkit_reconcile") for _ in range(3)]
    assert [one.ended() for one in passes] == [0, 0, 0], processes.logs
    assert len(queued()) == 20


def test_a_job_is_readable_as_json_and_holds_nothing_of_the_turn(processes):
    fragile.conversation().submit("the secret of the sea")
    (job,) = queued()
    fields = {name.decode(): value for name, value in redis().hgetall(f"rq:job:{job}").items()}
    data = json.loads(zlib.decompress(fields["data"]))
    assert data == ["turnkit_django.jobs.wake", None, [], {}]
    assert b"secret of the sea" not in all_bytes()


class Bomb:
    def __init__(self, marker: str) -> None:
        self._marker = marker

    def __reduce__(self):
        return os.mkdir, (self._marker,)


def test_a_pickle_in_the_queue_is_not_opened(processes, model_port, tmp_path):
    marker = tmp_path / "marker"
    bomb = pickle.dumps(Bomb(str(marker)))
    for name, data in {"plain": bomb, "packed": zlib.compress(bomb)}.items():
        fields = {"data": data, "origin": "turnkit", "status": "queued", "created_at": "2026-01-01T00:00:00.000000Z"}
        redis().hset(f"rq:job:{name}", mapping=fields | {"timeout": -1, "meta": data})
        redis().rpush("rq:queue:turnkit", name)
    with model_server(hello, port=model_port):
        worker = processes.worker()
        wait_until(lambda: queued() == [], lambda: worker.log)
        turn = fragile.conversation().submit("hi")
        wait_until(lambda: has_ended(turn), lambda: worker.log)
    assert worker.is_alive
    assert not marker.exists()
    assert turn.status == "completed"


def test_redis_never_holds_what_was_said(processes, model_port):
    words = [b"whisper of the user", b"whisper of the model", b"charged", b"whisper of the provider"]

    def whisper(request):
        last = request.messages[-1]
        if last["role"] == "tool":
            return {"error": {"status": 400, "message": "whisper of the provider"}}
        return [text("whisper of the model"), call("charge_unknown")]

    turn = fragile.conversation().submit("whisper of the user")
    with model_server(whisper, port=model_port):
        worker = processes.worker()
        wait_until(lambda: has_ended(turn), lambda: worker.log)
        assert [word for word in words if word in all_bytes()] == []
        fragile.conversation().submit("whisper of the user")
        wait_until(lambda: Effect.objects.count() == 2, lambda: worker.log)
    worker.end()
    assert [word for word in words if word in all_bytes()] == []
    assert turn.status == "failed"
    assert turn.error["type"] == "PermanentModelError"


def test_work_handed_over_at_the_end_of_a_slice_goes_on(processes, model_port):
    """Many short slices instead of one: nothing is lost between two of them."""
    turns = [fragile.conversation().submit(f"hi {number}") for number in range(4)]
    redis().flushdb()
    RQDispatcher().send_wake()
    settings = {"CLIENT": "tests.testapp.clients.HttpClient", "WORKER_SLICE": 1}
    script = Script("charge_safe")
    with model_server(script, port=model_port):
        processes.run("rqworker", "turnkit", "--burst", TURNKIT_TEST_SETTINGS=json.dumps(settings))
    assert all(has_ended(turn) for turn in turns)
    assert_clean()
