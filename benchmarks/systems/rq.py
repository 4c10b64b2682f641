"""No-op jobs of RQ: what the queue costs under everything that is built on it."""

from __future__ import annotations

from typing import ClassVar

import redis
from rq import Queue
from rq.job import Job
from rq.registry import FailedJobRegistry, FinishedJobRegistry

from benchmarks.systems.base import require
from benchmarks.workers.rq import QUEUE, noop


class Rq:
    """RQ's `SimpleWorker`, which does not fork, and jobs that do nothing."""

    name: ClassVar = "rq"
    title: ClassVar = "RQ, no-op job"
    unit: ClassVar = "job"
    has_database: ClassVar = False

    def __init__(self, redis_url: str) -> None:
        self._redis = redis.Redis.from_url(redis_url)
        self._queue = Queue(QUEUE, connection=self._redis)
        self._finished = FinishedJobRegistry(queue=self._queue)
        self._failed = FailedJobRegistry(queue=self._queue)

    def prepare(self) -> None:
        pass

    def start(self) -> None:
        self._redis.flushdb()

    def stop(self) -> None:
        pass

    def submit(self) -> str:
        return self._queue.enqueue(noop).id

    def done(self) -> int:
        return self._finished.get_job_count(cleanup=False) + self._failed.get_job_count(cleanup=False)

    def is_done(self, work_id: str) -> bool:
        return Job.fetch(work_id, connection=self._redis).is_finished

    def is_idle(self) -> bool:
        return self._queue.count == 0

    def verify(self, count: int) -> None:
        found = self._finished.get_job_count(cleanup=False)
        require(self.name, expected=count, found=found)

    def settings(self) -> dict[str, str]:
        return {"worker": "SimpleWorker"}
