"""Runs what is due, in this process, from PostgreSQL alone."""

from __future__ import annotations

import threading
import time

from turnkit_django.dispatch.base import get_dispatcher
from turnkit_django.engine import runner
from turnkit_django.store import connections, reads

_TRIES = 10
_PAUSE_SECONDS = 0.05


def run_due() -> bool:
    """Run the next due turn; whether there was one.

    A lane that somebody locks just now is passed over by the claim, so due work that was not found is looked for again.
    """
    for _ in range(_TRIES):
        if runner.run_next():
            return True
        if not reads.has_due():
            break
        threading.Event().wait(_PAUSE_SECONDS)
    connections.release()
    return False


def run_all() -> int:
    """Run until nothing is due; how many turns."""
    count = 0
    while not get_dispatcher().is_stopping() and run_due():
        count += 1
    return count


def run_slice(*, seconds: float) -> None:
    """Run until nothing is due, the time is over or the worker is told to stop; then hand what is left to another."""
    end = time.monotonic() + seconds
    while not get_dispatcher().is_stopping() and time.monotonic() < end:
        if not run_due():
            return
    if reads.has_due():
        get_dispatcher().send_wake()
    connections.release()
