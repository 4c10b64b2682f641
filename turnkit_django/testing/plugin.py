"""The pytest plugin: fixtures for tests of agents. Works under `django_db` and `django_db(transaction=True)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from turnkit_django.testing.clients import ScriptedModel


@pytest.fixture
def turnkit_model() -> Iterator[Callable[[Any], ScriptedModel]]:
    """A function that makes a `ScriptedModel` of a script and answers every model call of the test with it."""
    from contextlib import ExitStack

    from turnkit_django.testing.clients import scripted_model

    with ExitStack() as stack:
        yield lambda steps, **options: stack.enter_context(scripted_model(steps, **options))


@pytest.fixture
def turnkit_drain() -> Callable[..., int]:
    """`turnkit_django.testing.drain`."""
    from turnkit_django.testing.workers import drain

    return drain
