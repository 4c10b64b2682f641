"""What tests do when a worker has died: reconcile, and let another worker be woken."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections
from django.test import override_settings

from tests.faults.conftest import QUICK
from tests.waiting import wait_until
from turnkit_django.engine import reconcile
from turnkit_django.models import Turn
from turnkit_django.testing import call, text


def with_settings(**settings: object) -> dict[str, str]:
    """The environment of a worker with these settings."""
    return {"TURNKIT_TEST_SETTINGS": json.dumps(QUICK | settings)}


@contextmanager
def waking(queue: str) -> Iterator[None]:
    """Send the wake-ups of this process to that queue."""
    with override_settings(TURNKIT={"QUEUE": queue}):
        yield


def maintained_until(condition: Callable[[], Any], what: object = "", *, seconds: float = 40) -> None:
    """Reconcile, as cron would, until the condition holds."""

    def is_reached() -> bool:
        reconcile.run_pass(batch=100)
        return bool(condition())

    wait_until(is_reached, what, seconds=seconds)


def has_ended(turn: Turn) -> bool:
    turn.refresh_from_db()
    return turn.is_terminal


def holder_pid(turn: Turn) -> int | None:
    """The process whose claim is on the turn."""
    turn.refresh_from_db()
    return int(turn.claimed_by.split(":")[-2]) if turn.claimed_by else None


class Script:
    """A model that charges once and then says so, whoever asks and however often. Notes which process was asking."""

    def __init__(self, tool: str, **arguments: object) -> None:
        self._tool, self._arguments = tool, arguments
        self.pids: list[int] = []
        self.told: list[str] = []

    def __call__(self, request: Any) -> Any:
        self.pids += _claimants()
        last = request.messages[-1]
        if last["role"] == "tool":
            self.told.append(last["content"])
            return text("charged it")
        return call(self._tool, self._arguments)


def _claimants() -> list[int]:
    """Whose claims the database names just now; asked from a thread of the server."""
    try:
        names = Turn.objects.filter(claimed_by__isnull=False).values_list("claimed_by", flat=True)
        return [int(name.split(":")[-2]) for name in names]
    finally:
        connections.close_all()
