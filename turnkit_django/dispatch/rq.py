"""Wake-ups through RQ. The only module that imports rq, redis or django_rq."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from typing import Any, TypeVar

from django.core.signals import setting_changed
from django.dispatch import receiver
from django.utils import timezone
from django_rq import get_queue
from redis import ConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from rq import Queue, SimpleWorker
from rq.exceptions import StopRequested
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.worker import WorkerStatus

from turnkit_django import conf

logger = logging.getLogger("turnkit")

_R = TypeVar("_R")

WAKE_JOB = "turnkit_django.jobs.wake"
SEND_SECONDS = 1.0
"""Bound of one step with Redis while a request of the application waits for it."""
FAILURE_SECONDS = 3600
ENOUGH_JOBS = 1000
"""With so many jobs waiting, one more would wake nobody sooner; while no worker runs they would pile up."""
RECONCILE_KEY = "turnkit:{queue}:reconciled_at"
_REMEMBERED = timedelta(days=30)
_PAUSE_SECONDS = 1.0


class _Stop(BaseException):
    """Ends the wait for a job. RQ's `StopRequested` is an `Exception`, which redis-py swallows in places."""


class Worker(SimpleWorker):
    """An RQ worker for wake-ups: JSON jobs, and no fork, so that one process imports litellm once and keeps its pool.

    Use it as `RQ = {"WORKER_CLASS": "turnkit_django.dispatch.Worker"}`; then plain `rqworker` works, whatever
    serializer its option names.
    """

    current: Worker | None = None
    _is_waiting = False

    def __init__(self, *args: Any, **options: Any) -> None:
        # rqworker always passes a serializer, and its default is pickle: code execution for whoever writes to Redis.
        options["serializer"] = JSONSerializer
        super().__init__(*args, **options)

    def execute_job(self, job: Job, queue: Queue) -> None:
        """Run a wake-up. What it was for is stored: if Redis is lost meanwhile, only RQ's record of the job is."""
        Worker.current = self
        try:
            super().execute_job(job, queue)
        except RedisError as problem:
            self._await_redis(problem)

    def check_for_suspension(self, burst: bool) -> None:  # noqa: FBT001  # of RQ
        self._with_redis(lambda: super(Worker, self).check_for_suspension(burst))

    def dequeue_job_and_maintain_ttl(self, *args: Any, **options: Any) -> tuple[Job, Queue] | None:
        """Wait for a job; the only place that a signal to stop interrupts."""
        look = super().dequeue_job_and_maintain_ttl
        try:
            try:
                self._is_waiting = True
                return self._with_redis(lambda: look(*args, **options))
            finally:
                self._is_waiting = False
        except _Stop:
            # The interrupted connection may hold an answer that nobody has read.
            self.connection.connection_pool.disconnect(inuse_connections=False)
            raise StopRequested from None

    def heartbeat(self, *args: Any, **options: Any) -> None:
        self._with_redis(lambda: super(Worker, self).heartbeat(*args, **options))
        # Python swallows what is raised during a `__del__`, and redis-py's pipelines have one.
        self._leave_if_told()

    def run_maintenance_tasks(self) -> None:
        self._with_redis(super().run_maintenance_tasks)
        self._leave_if_told()

    def _with_redis(self, step: Callable[[], _R]) -> _R | None:
        """Take the step, again whenever Redis was lost and is back: RQ waits for Redis in one place only, and a loss
        anywhere else ends its worker. None: the worker was told to stop before the step was done.
        """
        while True:
            self._leave_if_told()
            try:
                return step()
            except RedisError as problem:
                self._await_redis(problem)
                if self.is_stopping:
                    self._leave_if_told()
                    return None

    def _await_redis(self, problem: RedisError) -> None:
        told = {"event": "redis.lost"}
        logger.warning("Redis was lost by a worker; waiting: %s", conf.clean(str(problem)), extra=told)
        while not self.is_stopping:
            threading.Event().wait(_PAUSE_SECONDS)
            if self._has_redis():
                return

    def _leave_if_told(self) -> None:
        if self._is_waiting and self._stop_requested:
            raise _Stop

    def _shutdown(self) -> None:
        """Called by the handler of SIGTERM and SIGINT, anywhere. RQ's loop looks at the flag before it waits."""
        self._stop_requested = True
        self._leave_if_told()
        if self.get_state() == WorkerStatus.BUSY:
            super()._shutdown()  # type: ignore[no-untyped-call]  # of RQ

    def _has_redis(self) -> bool:
        try:
            return bool(self.connection.ping())
        except RedisError:
            return False

    @property
    def is_stopping(self) -> bool:
        return bool(self._stop_requested)


class RQDispatcher:
    """Sends each wake-up as one job without arguments to the queue `TURNKIT["QUEUE"]`."""

    def send_wake(self) -> None:
        queue = Queue(conf.get().QUEUE, connection=_connection(conf.get().QUEUE), serializer=JSONSerializer)
        if queue.count >= ENOUGH_JOBS:
            return
        queue.enqueue(WAKE_JOB, job_timeout=-1, result_ttl=0, failure_ttl=FAILURE_SECONDS)

    def is_stopping(self) -> bool:
        return Worker.current is not None and Worker.current.is_stopping

    def note_reconcile(self) -> None:
        key = RECONCILE_KEY.format(queue=conf.get().QUEUE)
        _connection(conf.get().QUEUE).set(key, timezone.now().isoformat(), ex=_REMEMBERED)

    def last_reconcile(self) -> datetime | None:
        found = _connection(conf.get().QUEUE).get(RECONCILE_KEY.format(queue=conf.get().QUEUE))
        return None if found is None else datetime.fromisoformat(found.decode() if isinstance(found, bytes) else found)


@cache
def _connection(queue: str) -> Redis:
    """The queue's Redis with a short bound, whatever `RQ_QUEUES` says: a view must not wait for a hanging Redis."""
    pool = get_queue(queue).connection.connection_pool
    bounds = {"socket_timeout": SEND_SECONDS, "socket_connect_timeout": SEND_SECONDS, "retry": Retry(NoBackoff(), 0)}
    kwargs = pool.connection_kwargs | bounds
    return Redis(connection_pool=ConnectionPool(connection_class=pool.connection_class, **kwargs))


@receiver(setting_changed)
def _forget(*, setting: str, **_: object) -> None:
    if setting == "RQ_QUEUES":
        _connection.cache_clear()
