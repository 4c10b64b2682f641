"""RQ's own `SimpleWorker`, which does not fork, and a job that does nothing."""

import os

import redis
import rq

from benchmarks import first_call

QUEUE = "noop"


def run(*, number: int) -> None:
    worker = rq.SimpleWorker([QUEUE], connection=redis.Redis.from_url(os.environ["REDIS_URL"]))
    worker.work(logging_level="WARNING")


def noop() -> None:
    """The job."""
    first_call.note()
