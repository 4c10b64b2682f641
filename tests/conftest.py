from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from turnkit_django.agents import registry
from turnkit_django.store import outbox

# They say nothing about a second Python that others do not say faster: pages, texts, processes, and large products.
ONCE = (
    "tests/admin/test_lists.py",
    "tests/benchmarks",
    "tests/browser",
    "tests/clients/test_litellm.py",
    "tests/concurrency/test_every_pair.py",
    "tests/docs",
    "tests/engine/test_explain_rows.py",
    "tests/example/test_demo.py",
    "tests/faults/test_connections.py",
    "tests/faults/test_explained.py",
    "tests/faults/test_interleavings.py",
    "tests/faults/test_polite_exits.py",
    "tests/faults/test_redis_away.py",
    "tests/faults/test_sigterm_anywhere.py",
    "tests/house",
    "tests/store/test_commit_not_heard.py",
    "tests/testing/test_model_server.py",
    "tests/tools/test_results_end_to_end.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(ONCE):
            item.add_marker(pytest.mark.once)


@pytest.fixture(autouse=True)
def redis_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Redis that hung in another test has not silenced this one's wake-ups."""
    monkeypatch.setattr(outbox, "_silent_until", 0.0)


@pytest.fixture(autouse=True)
def agents_of_other_tests_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is known in that test; what its module registers stays."""
    monkeypatch.setattr(registry, "_agents", dict(registry.registered()))


@pytest.fixture
def configure(settings: Any) -> Callable[[dict[str, Any]], None]:
    """Puts `TURNKIT` in force for the rest of the test."""

    def change(values: dict[str, Any]) -> None:
        settings.TURNKIT = values

    return change


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> Iterator[None]:
    """Name the test database in the environment: a process that a test starts reads the same settings."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TURNKIT_TEST_DATABASE", connection.settings_dict["NAME"])
        yield
