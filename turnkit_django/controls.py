"""Verbs that steer turns from outside."""

from __future__ import annotations

from turnkit_django.models import Turn
from turnkit_django.store import reads, transitions


def cancel(turn: Turn) -> Turn:
    """End a turn at once. A request that is under way is not aborted; its answer will not be stored."""
    cancel_by_id(turn.pk)
    return reads.refreshed(turn)


def cancel_by_id(turn_id: str) -> bool:
    """As `cancel`; whether it was this call that ended the turn, which may have ended a moment ago.

    Raises:
        Turn.DoesNotExist: If there is none.
    """
    return transitions.cancel(turn_id) is not None
