import json
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.processes import Processes, redis, running

QUICK = {"CLIENT": "tests.testapp.clients.HttpClient"}


@pytest.fixture(scope="module")
def model_port() -> int:
    """Where the model of this module's tests listens: a worker that outlives one test must know it."""
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        return probe.getsockname()[1]


@pytest.fixture
def empty_redis() -> None:
    redis().flushdb()


@pytest.fixture
def processes(transactional_db: None, empty_redis: None, tmp_path: Path, model_port: int) -> Iterator[Processes]:
    """Processes on the test's database, Redis and model."""
    with running(tmp_path, **environment(model_port)) as found:
        yield found


def environment(model_port: int, **settings: object) -> dict[str, str]:
    return {
        "OPENAI_API_BASE": f"http://127.0.0.1:{model_port}/v1",
        "OPENAI_API_KEY": "sk-of-nobody-000000",
        "PGAPPNAME": "faults",
        "TURNKIT_TEST_SETTINGS": json.dumps(QUICK | settings),
    }
