"""Rows that a scan has found, each handled by itself: one that fails or that somebody holds stops no other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from turnkit_django import conf
from turnkit_django.core.content import Json
from turnkit_django.engine.run import error, said

logger = logging.getLogger("turnkit")

_SET_ASIDE_SECONDS = 60.0
_MOST_FAILURES = 10  # for each row of the batch; then it is not the rows that are at fault

_Row = TypeVar("_Row")
_Found = TypeVar("_Found", covariant=True)


class Scan(Protocol[_Found]):
    def __call__(self, *, limit: int) -> Sequence[_Found]: ...


@dataclass(slots=True)
class Tally:
    """What one look did.

    Attributes:
        done: Rows that were handled.
        errors: Rows that could not be; each is logged and set aside.
        left: Rows that stay as they were, since somebody holds them or has moved them meanwhile.
    """

    done: int = 0
    errors: int = 0
    left: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.done + other.done, self.errors + other.errors, self.left + other.left)


@dataclass(frozen=True, slots=True)
class Subject:
    """The rows that a line of the log is about: in words, and as its extra fields."""

    name: str
    told: dict[str, object]


def handle_each(
    scan: Scan[_Row],
    handle: Callable[[_Row], object],
    set_aside: Callable[[_Row, Exception], object],
    *,
    batch: int,
    key: Callable[[_Row], object],
) -> Tally:
    """Handle or set aside at most `batch` rows, whatever stands before them.

    What is held by others, was moved meanwhile or cannot even be set aside does not count: the scan is asked for as
    many more.

    Args:
        scan: Gives the rows that are due, those first that have been due for longest.
        handle: Gives None if it left the row as it was.
        set_aside: Whether the row will not be due again for a while.
        key: Tells the rows apart.
    """
    tally, taken = Tally(), 0
    passed_over: set[object] = set()
    while True:
        limit = batch + len(passed_over)
        rows = scan(limit=limit)
        for row in rows:
            if key(row) in passed_over:
                continue
            if _is_taken(tally, row, handle, set_aside):
                taken += 1
            else:
                passed_over.add(key(row))
            if taken == batch or tally.errors >= _MOST_FAILURES * batch:
                return tally
        if len(rows) < limit:
            return tally


def _is_taken(
    tally: Tally, row: _Row, handle: Callable[[_Row], object], set_aside: Callable[[_Row, Exception], object]
) -> bool:
    try:
        is_done = handle(row) is not None
    except Exception as problem:
        tally.errors += 1
        return bool(set_aside(row, problem))
    tally.done += is_done
    tally.left += not is_done
    return is_done


def note(problem: BaseException, write: Callable[[Json, float], object], of: Subject) -> bool:
    """Have `write` say on rows why they could not be handled, and for how many seconds they are left alone; whether it
    could.
    """
    try:
        return bool(write(error(type(problem).__name__, said(problem)), _SET_ASIDE_SECONDS))
    except Exception as worse:
        log("set aside", worse, of)
        return False


def log(what: str, problem: BaseException, of: Subject) -> None:
    """Say that something could not be done with rows."""
    told = {"event": "reconcile.error", **of.told}
    logger.error("%s could not be %s: %s", of.name, what, conf.clean_traceback(problem), extra=told)
