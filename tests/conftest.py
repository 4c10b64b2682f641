from collections.abc import Iterator

import pytest
from django.db import connection


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> Iterator[None]:
    """Name the test database in the environment: a process that a test starts reads the same settings."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TURNKIT_TEST_DATABASE", connection.settings_dict["NAME"])
        yield
