"""Verbs that steer turns from outside."""

from __future__ import annotations

from collections.abc import Sequence

from turnkit_django.core.content import shown
from turnkit_django.engine.drafts import new_turn
from turnkit_django.errors import InputError
from turnkit_django.models import Turn
from turnkit_django.store import reads, transitions

DESCENDANTS = ("retain", "cascade")


def pause(turn: Turn, *, descendants: str = "retain") -> Turn:
    transitions.pause(turn.pk, is_cascade=_is_cascade(turn, descendants))
    return reads.refreshed(turn)


def resume(turn: Turn, *, descendants: str = "retain") -> Turn:
    transitions.resume(turn.pk, is_cascade=_is_cascade(turn, descendants))
    return reads.refreshed(turn)


def cancel(turn: Turn, *, descendants: str = "retain") -> Turn:
    """End a turn at once. A request that is under way is not aborted; its answer will not be stored."""
    transitions.cancel(turn.pk, is_cascade=_is_cascade(turn, descendants))
    return reads.refreshed(turn)


def cancel_by_id(turn_id: str) -> bool:
    """As `cancel`; whether it was this call that ended the turn, which may have ended a moment ago.

    Raises:
        Turn.DoesNotExist: If there is none.
    """
    return bool(transitions.cancel(turn_id))


def _is_cascade(turn: Turn, descendants: object) -> bool:
    if descendants not in DESCENDANTS:
        names = " or ".join(repr(name) for name in DESCENDANTS)
        raise InputError(f"{turn.pk}: expected descendants to be {names}, got {shown(descendants)}")
    return descendants == "cascade"


def wait_for(turn: Turn, targets: Sequence[Turn | str]) -> Turn:
    if not targets:
        raise InputError(f"{turn.pk}: expected at least one turn to wait for, got none")
    target_ids = dict.fromkeys(_id_of(turn, target) for target in targets)
    transitions.open_waits(turn.pk, list(target_ids))
    return reads.refreshed(turn)


def _id_of(turn: Turn, target: object) -> str:
    if isinstance(target, Turn):
        return target.pk
    if isinstance(target, str):
        return target
    got = f"{shown(target)} ({type(target).__name__})"
    raise InputError(f"{turn.pk}: expected turns or their ids to wait for, got {got}")


def retry(turn: Turn) -> Turn:
    """A new turn at the end of the lane, of the agent as it is defined now; the options are those of the failed one."""
    failed = reads.turn(turn.pk)
    draft = new_turn(failed.conversation, {})
    draft.retry_of_id = failed.pk
    draft.model, draft.options = failed.model, failed.options
    draft.context, draft.principal = failed.context, failed.principal
    draft.callback_id, draft.hops = failed.callback_id, failed.hops
    return transitions.retry(draft)
