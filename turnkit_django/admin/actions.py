"""Cancelling from the admin: through the verb, with permission, confirmed, logged, and counted by what happened."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from enum import Enum

from django.core.exceptions import ObjectDoesNotExist
from django.db import transaction

from turnkit_django import conf, controls
from turnkit_django.models import Turn
from turnkit_django.store import connections

logger = logging.getLogger("turnkit")

MOST = 1_000
"""Turns that one request may cancel."""


class Outcome(Enum):
    """What cancelling did to one turn, as one says it of one turn and of several."""

    CANCELLED = ("cancelled", "cancelled")
    ENDED = ("was already finished", "were already finished")
    GONE = ("no longer exists", "no longer exist")
    FAILED = ("could not be cancelled: see the log", "could not be cancelled: see the log")


def cancel_turns(turn_ids: Iterable[str], *, note: Callable[[Turn], object]) -> Counter[Outcome]:
    """Cancel each turn in a transaction of its own, which also holds the note of who did it; how many ended how."""
    return Counter(_cancelled(turn_id, note) for turn_id in turn_ids)


def _cancelled(turn_id: str, note: Callable[[Turn], object]) -> Outcome:
    try:
        with transaction.atomic(using=connections.alias()):
            if not controls.cancel_by_id(turn_id):
                return Outcome.ENDED
            note(Turn(id=turn_id, status=Turn.Status.CANCELLED))
            return Outcome.CANCELLED
    except ObjectDoesNotExist:  # the turn, or its conversation while this waited for it
        return Outcome.GONE
    except Exception as problem:
        trace = conf.clean_traceback(problem)
        told = {"event": "admin.cancel_failed", "turn_id": turn_id}
        logger.error("%s could not be cancelled: %s", turn_id, trace, extra=told)
        return Outcome.FAILED


def said(counts: Counter[Outcome]) -> str:
    """The counts as a sentence: `3 cancelled, 1 was already finished`."""
    told = [f"{counts[each]:,} {each.value[counts[each] != 1]}" for each in Outcome if counts[each]]
    return ", ".join(told) or "0 cancelled"
