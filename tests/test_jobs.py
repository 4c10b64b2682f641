"""What RQ keeps of a job that failed holds no secret."""

import logging
import signal
from collections.abc import Iterator

import django_rq
import pytest
from django.db import OperationalError
from django.test import override_settings
from rq.job import JobStatus

from turnkit_django import jobs
from turnkit_django.dispatch import Worker
from turnkit_django.dispatch import rq as rq_dispatch
from turnkit_django.dispatch.base import get_dispatcher
from turnkit_django.engine import drain, reconcile

SECRET = "correct-horse-battery"


@pytest.fixture
def _handlers() -> Iterator[None]:
    """A worker takes over SIGINT and SIGTERM of the process it works in: here that is pytest's."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def fail(**_: object) -> None:
    raise OperationalError(f"no connection with password {SECRET}")


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_handlers")
@pytest.mark.parametrize(
    ("job", "module", "name"), [("wake", drain, "run_slice"), ("reconcile", reconcile, "run_pass")]
)
def test_a_failed_job_leaves_no_secret_in_redis(monkeypatch, caplog, job, module, name):
    monkeypatch.setenv("HELPDESK_DB_PASSWORD", SECRET)
    monkeypatch.setattr(module, name, fail)
    queue = django_rq.get_queue("turnkit")
    queue.empty()
    with caplog.at_level(logging.ERROR):
        queued = queue.enqueue(f"turnkit_django.jobs.{job}", failure_ttl=60)
        Worker([queue], connection=queue.connection).work(burst=True)
    failed = queue.fetch_job(queued.id)
    assert failed.get_status() == JobStatus.FAILED
    told = failed.latest_result().exc_string
    assert ("OperationalError" in told, SECRET in told, SECRET in caplog.text) == (True, False, False)
    failed.delete()


def test_the_jobs_take_no_arguments():
    with pytest.raises(TypeError):
        jobs.wake("turn_1")


def test_wake_ups_do_not_pile_up_while_no_worker_runs(monkeypatch):
    monkeypatch.setattr(rq_dispatch, "ENOUGH_JOBS", 2)
    queue = django_rq.get_queue("turnkit")
    queue.empty()
    for _ in range(5):
        get_dispatcher().send_wake()
    assert queue.count == 2
    queue.empty()


def test_another_address_of_the_queue_is_used_at_once_and_the_first_one_again_afterwards():
    def address() -> object:
        return rq_dispatch._connection("turnkit").connection_pool.connection_kwargs["port"]

    before = address()
    with override_settings(RQ_QUEUES={"turnkit": {"URL": "redis://127.0.0.1:1/0", "SERIALIZER": "json"}}):
        assert address() == 1
    assert address() == before
