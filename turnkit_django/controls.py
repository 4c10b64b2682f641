"""Verbs that steer turns from outside."""

from __future__ import annotations

from turnkit_django.models import Turn
from turnkit_django.store import reads, transitions


def cancel(turn: Turn) -> Turn:
    """End a turn at once. A request that is under way is not aborted; its answer will not be stored."""
    transitions.cancel(turn.pk)
    return reads.refreshed(turn)
