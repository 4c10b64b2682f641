"""The tool turn as a DBOS workflow of three steps, taken from a queue."""

import os
import threading
from typing import Any

from dbos import DBOS
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL

from benchmarks import first_call, job

QUEUE = "turns"
WORKFLOW = "turn"
POLL_SECONDS = 0.05
AT_ONCE = 100
READY = "queue registered"


def system_database_url(database_url: str) -> str:
    """The same database in the form that SQLAlchemy reads."""
    found = {name: str(value) for name, value in conninfo_to_dict(database_url).items()}
    query = {"host": found["host"], "port": found["port"]}
    url = URL.create("postgresql", username=found["user"], database=found["dbname"], query=query)
    return url.render_as_string(hide_password=False)


@DBOS.step()
def ask_model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    first_call.note()
    if job.is_answered(messages):
        return {"role": "assistant", "content": job.ANSWER}
    call = {"id": "call_1", "name": job.TOOL, "arguments": job.ARGUMENTS}
    return {"role": "assistant", "tool_calls": [call]}


@DBOS.step()
def call_tool(arguments: dict[str, str]) -> dict[str, Any]:
    return job.look_up(**arguments)


@DBOS.workflow(name=WORKFLOW)
def turn(task: str) -> str:
    messages: list[dict[str, Any]] = [{"role": "user", "content": task}]
    messages.append(ask_model(messages))
    (call,) = messages[-1]["tool_calls"]
    messages.append({"role": "tool", "content": call_tool(call["arguments"])})
    messages.append(ask_model(messages))
    return str(messages[-1]["content"])


def run(*, number: int) -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": system_database_url(os.environ["DATABASE_URL"]),
            "application_version": "1",
            "executor_id": f"worker-{number}",
            "log_level": "WARNING",
        }
    )
    DBOS.launch()
    DBOS.register_queue(QUEUE, polling_interval_sec=POLL_SECONDS, worker_concurrency=AT_ONCE)
    print(READY, flush=True)  # noqa: T201  the log of this process
    threading.Event().wait()
