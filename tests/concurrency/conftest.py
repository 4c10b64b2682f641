from collections.abc import Iterator

import pytest

from tests.concurrency.threads import alone, deadlocks, observer


@pytest.fixture
def no_deadlock(transactional_db: None) -> Iterator[None]:
    """PostgreSQL has counted none when the test and all its connections have ended."""
    with observer() as watching:
        before = deadlocks(watching)
        yield
        alone(watching)
        assert deadlocks(watching) == before
