"""The same turn in DBOS, another library that makes workflows durable in PostgreSQL."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, ClassVar

import psycopg
from dbos import DBOSClient

from benchmarks import job, processes
from benchmarks.postgres import Cluster
from benchmarks.systems.base import require
from benchmarks.workers import dbos as worker

_START_SECONDS = 60.0


class Dbos:
    """A synchronous workflow of three steps, through a DBOS queue."""

    name: ClassVar = "dbos"
    title: ClassVar = "DBOS queue"
    unit: ClassVar = "turn"
    has_database: ClassVar = True

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._open = ExitStack()
        self._watch: psycopg.Connection[Any]
        self._client: DBOSClient

    def prepare(self) -> None:
        self._cluster.start_template()
        with processes.running(self.name, 1, {"DATABASE_URL": self._cluster.url()}) as workers:
            workers.wait_until("it is ready", lambda: worker.READY in workers.log, seconds=_START_SECONDS, pause=0.05)
        self._cluster.keep_template(self.name)

    def start(self) -> None:
        self._cluster.start(self.name)
        self._watch = self._open.enter_context(self._cluster.watching())
        self._client = DBOSClient(system_database_url=worker.system_database_url(self._cluster.url()))
        self._open.callback(self._client.destroy)

    def stop(self) -> None:
        self._open.close()

    def submit(self) -> str:
        options = {"workflow_name": worker.WORKFLOW, "queue_name": worker.QUEUE}
        return str(self._client.enqueue(options, job.TASK).get_workflow_id())

    def done(self) -> int:
        return self._count("SELECT count(*) FROM dbos.workflow_status WHERE status IN ('SUCCESS', 'ERROR')")

    def is_done(self, work_id: str) -> bool:
        query = "SELECT (status IN ('SUCCESS', 'ERROR'))::int FROM dbos.workflow_status WHERE workflow_uuid = %s"
        return bool(self._count(query, work_id))

    def is_idle(self) -> bool:
        return True

    def verify(self, count: int) -> None:
        found = (
            self._count("SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'"),
            self._count("SELECT count(*) FROM dbos.operation_outputs WHERE error IS NULL"),
        )
        require(self.name, expected=(count, 3 * count), found=found)

    def settings(self) -> dict[str, str]:
        return {
            "worker": f"queue polled every {worker.POLL_SECONDS * 1000:.0f} ms, {worker.AT_ONCE} workflows at once",
            "workflow": "synchronous, three steps",
            "connections": "its default pool of 20, pre-ping on",
        }

    def _count(self, query: str, *values: str) -> int:
        row = self._watch.execute(query.encode(), values or None).fetchone()
        return 0 if row is None else int(row[0])
