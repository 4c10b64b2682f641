"""Waiting for conditions, with a deadline that only a bug reaches."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: object = "", *, seconds: float = 30) -> T:
    """Poll until the condition holds; its value. `what` may be a callable that describes the state at the end."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            told = what() if callable(what) else what
            raise AssertionError(f"not within {seconds} s: {told or condition}")
        threading.Event().wait(0.02)
    return value
