"""A pytest plugin, loaded by `-p`: the servers run before pytest-django reads the settings, until pytest ends."""

import contextlib
from collections.abc import Generator

import pytest

from turnkit_django.testing.servers import embedded_servers


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    running = contextlib.ExitStack()
    early_config.add_cleanup(running.close)
    servers = running.enter_context(embedded_servers())
    # The settings read these two here and in every process that a test starts.
    environment = running.enter_context(pytest.MonkeyPatch.context())
    environment.setenv("DATABASE_URL", servers.database_url)
    environment.setenv("REDIS_URL", servers.redis_url)
    return (yield)
