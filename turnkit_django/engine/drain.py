"""Runs what is due, in this process, from PostgreSQL alone."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from enum import Enum

from turnkit_django.dispatch.base import get_dispatcher
from turnkit_django.engine import deliveries, runner
from turnkit_django.store import connections, inboxes, reads

_TRIES = 10
_PAUSE_SECONDS = 0.05


class Found(Enum):
    """What a look for due work has found."""

    RAN = "ran"
    NOTHING = "nothing"
    HELD = "held"  # there is due work, but somebody keeps its lane


def run_due() -> bool:
    """Run the next due turn; whether there was one."""
    return _look() is Found.RAN


def _look() -> Found:
    """A lane that somebody locks just now is passed over: look again, with the claim each time at one lane more."""
    found = Found.HELD
    for spare in range(_TRIES):
        if runner.run_next(spare=spare):
            return Found.RAN
        messages = deliveries.look()
        if messages.done:
            continue  # it may have brought a turn
        if not (messages.left or reads.has_due()):
            found = Found.NOTHING
            break
        threading.Event().wait(_PAUSE_SECONDS)
    connections.release()
    return found


def run_all(*, seconds: float = math.inf, should_stop: Callable[[], bool] = lambda: False) -> int:
    """Run until nothing is due, the time is over or the caller is told to stop; how many turns.

    Args:
        seconds: After so many no further turn is begun.
        should_stop: Asked before each turn, as the dispatcher is.
    """
    end = time.monotonic() + seconds
    count = 0
    while not (should_stop() or get_dispatcher().is_stopping()) and time.monotonic() < end and run_due():
        count += 1
    return count


def run_slice(*, seconds: float) -> None:
    """Deliver messages and run until nothing is due, the time is over or the worker is told to stop; then hand what is
    left to another.
    """
    end = time.monotonic() + seconds
    if not get_dispatcher().is_stopping():
        deliveries.look()  # work that never ends must not keep messages from arriving
    while not get_dispatcher().is_stopping() and time.monotonic() < end:
        found = _look()
        if found is Found.NOTHING:
            return
        if found is Found.HELD:
            break
    if reads.has_due() or inboxes.has_work():
        get_dispatcher().send_wake()
    connections.release()
