"""Turns of turnkit_django."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any, ClassVar

import django
import psycopg
import redis

from benchmarks import job
from benchmarks.postgres import Cluster
from benchmarks.systems.base import require

_QUEUE = "turnkit"


class Turnkit:
    """Plain `rqworker turnkit`; `benchmarks/settings.py` has the project's settings."""

    name: ClassVar = "turnkit"
    title: ClassVar = "turnkit_django"
    unit: ClassVar = "turn"
    has_database: ClassVar = True

    def __init__(self, cluster: Cluster, redis_url: str) -> None:
        self._cluster = cluster
        self._redis = redis.Redis.from_url(redis_url)
        self._open = ExitStack()
        self._watch: psycopg.Connection[Any]

    def prepare(self) -> None:
        os.environ |= {"DATABASE_URL": self._cluster.url(), "DJANGO_SETTINGS_MODULE": "benchmarks.settings"}
        django.setup()
        from django.core.management import call_command

        self._cluster.start_template()
        call_command("migrate", verbosity=0)
        self._disconnect()
        self._cluster.keep_template(self.name)

    def start(self) -> None:
        self._redis.flushdb()
        self._cluster.start(self.name)
        self._watch = self._open.enter_context(self._cluster.watching())

    def stop(self) -> None:
        self._disconnect()
        self._open.close()

    @staticmethod
    def _disconnect() -> None:
        from django.db import connection

        connection.close()
        connection.close_pool()

    def submit(self) -> str:
        from benchmarks.agents import agent

        return agent.submit(job.TASK).id

    def done(self) -> int:
        return self._count("SELECT count(*) FROM turnkit_turn WHERE completed_at IS NOT NULL")

    def is_done(self, work_id: str) -> bool:
        return bool(self._count("SELECT (completed_at IS NOT NULL)::int FROM turnkit_turn WHERE id = %s", work_id))

    def is_idle(self) -> bool:
        return not self._redis.llen(f"rq:queue:{_QUEUE}") and not self._redis.zcard(f"rq:wip:{_QUEUE}")

    def verify(self, count: int) -> None:
        found = (
            self._count("SELECT count(*) FROM turnkit_turn WHERE status = 'completed' AND attempts = 0"),
            self._count("SELECT count(*) FROM turnkit_message"),
            self._count("SELECT count(*) FROM turnkit_toolexecution WHERE status = 'completed'"),
        )
        require(self.name, expected=(count, 4 * count, count), found=found)

    def settings(self) -> dict[str, str]:
        return {
            "worker": "rqworker turnkit (turnkit_django.dispatch.Worker), one turn at a time",
            "tool": "recovery=replay_safe",
            "connections": "pool of 8, health checks on",
        }

    def _count(self, query: str, *values: str) -> int:
        row = self._watch.execute(query.encode(), values or None).fetchone()
        return 0 if row is None else int(row[0])
