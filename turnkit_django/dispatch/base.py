"""The door to the queue: one protocol."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from django.utils.module_loading import import_string

from turnkit_django import conf


class WakeUps(Protocol):
    """Sends signals that say "look", never "this one". Losing one costs time only."""

    def send_wake(self) -> None:
        """Make a worker look for due work. Takes about a second at most; raises whatever the queue raises."""
        ...

    def is_stopping(self) -> bool:
        """Whether the worker that runs in this process was asked to stop: it claims nothing more."""
        ...

    def note_reconcile(self) -> None:
        """Remember that a maintenance pass ended now, for `last_reconcile`; raises whatever the queue raises."""
        ...

    def last_reconcile(self) -> datetime | None:
        """When the last maintenance pass was noted; None if none is remembered."""
        ...


def get_dispatcher() -> WakeUps:
    """An instance of the class that `TURNKIT["DISPATCHER"]` names."""
    found: type[WakeUps] = import_string(conf.get().DISPATCHER)
    return found()
