"""A worker as people have it who do not use ours: RQ's own, which forks for each job."""

from typing import Any

from rq import Worker
from rq.serializers import JSONSerializer

from tests.testapp.fault_agents import leave_note


class ForkingWorker(Worker):
    """Its parent process has an open connection to the database whenever it forks."""

    def __init__(self, *args: Any, **options: Any) -> None:
        options["serializer"] = JSONSerializer
        super().__init__(*args, **options)

    def execute_job(self, *args: Any, **options: Any) -> None:
        leave_note("before the fork")
        super().execute_job(*args, **options)
        leave_note("after the fork")
