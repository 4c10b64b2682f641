"""Crashes on demand: stop the world at a named boundary.

The public points are `failpoints.PUBLIC_POINTS`; inside each transition there are also `<name>.before`, `.written` and
`.committed` (`.before` and `.committed` for a transition of one statement).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, cast

from turnkit_django import failpoints
from turnkit_django.errors import ConfigError

VARIABLE = "TURNKIT_CRASH_AT"

Way = Literal["kill", "raise", "block"]


class Crash(BaseException):
    """The simulated death of a worker: nothing in the package catches it, as nothing catches a SIGKILL."""


class _Trap:
    def __init__(self, point: str, nth: int, way: Way) -> None:
        self.point, self.way = point, way
        self._left = nth
        self._lock = threading.Lock()

    def __call__(self, name: str) -> None:
        if name != self.point:
            return
        with self._lock:
            self._left -= 1
            is_hit = self._left == 0
        if is_hit:
            self._spring()

    def _spring(self) -> None:
        if self.way == "raise":
            raise Crash(f"crash at {self.point}")
        if self.way == "block":
            sys.stdout.write(f"{VARIABLE}: blocked at {self.point}, waiting to be killed\n")
            sys.stdout.flush()
            threading.Event().wait()
        os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def crash_at(point: str, *, nth: int = 1, hard: bool = False) -> Iterator[None]:
    """Raise `Crash`, or kill this process, at the `nth` time the boundary is reached.

    Args:
        point: A public point, or a point inside a transition.
        nth: Counted from 1.
        hard: SIGKILL the process instead of raising.

    Raises:
        ConfigError: If there is no such point or `nth` is below 1.
    """
    _check(point, nth)
    failpoints.arm(_Trap(point, nth, "kill" if hard else "raise"))
    try:
        yield
    finally:
        failpoints.arm(None)


def arm_from_environment() -> None:
    """Arm what `TURNKIT_CRASH_AT=point[:nth[:kill|raise|block]]` asks for.

    Raises:
        ConfigError: If the value is not of that form.
    """
    value = os.environ.get(VARIABLE)
    if not value:
        return
    point, _, rest = value.partition(":")
    nth, _, way = rest.partition(":")
    if not (nth or "1").isdigit() or (way or "kill") not in {"kill", "raise", "block"}:
        raise ConfigError(f"{VARIABLE}={value!r}: expected point[:nth[:kill|raise|block]]")
    _check(point, int(nth or 1))
    failpoints.arm(_Trap(point, int(nth or 1), cast("Way", way or "kill")))


def _check(point: str, nth: int) -> None:
    name, _, place = point.partition(".")
    if point not in failpoints.PUBLIC_POINTS and not (name and place in {"before", "written", "committed"}):
        raise ConfigError(
            f"unknown crash point {point!r}; expected one of {', '.join(failpoints.PUBLIC_POINTS)}, or "
            "<transition>.before, .written or .committed"
        )
    if nth < 1:
        raise ConfigError(f"crash point {point!r}: expected `nth` from 1, got {nth}")
