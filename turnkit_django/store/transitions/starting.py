"""A draft becomes a row, or is known already; a row is submitted."""

from __future__ import annotations

from copy import copy

from django.db.models import Q

from turnkit_django import conf
from turnkit_django.core.states import TurnState
from turnkit_django.errors import StateError
from turnkit_django.models import Conversation, Message, Turn
from turnkit_django.store import connections, notices, outbox
from turnkit_django.store.transitions.waking import request_wake
from turnkit_django.store.transitions.writes import (
    append_messages,
    database_clock,
    deadline_of,
    move_turn,
    place_of,
    turn_rows,
)


def known_turn(draft: Turn, message: Message | None) -> Turn | None:
    """The turn that an earlier try, or an earlier use of the same key, has stored."""
    same = Q(pk=draft.pk)
    if draft.submission_key is not None:
        same |= Q(conversation=draft.conversation_id, submission_key=draft.submission_key)
    known = turn_rows().filter(same).select_related("trigger").first()
    if known is None or known.pk == draft.pk:
        return known
    stored = known.trigger.text if known.trigger else None
    if stored != (message.text if message else None):
        raise StateError(
            f"key {draft.submission_key!r} belongs to {known.pk} of {draft.conversation_id}, which was made with "
            "another text; use a new key for a new text"
        )
    return known


def stored_turn(lane: Conversation, draft: Turn, message: Message | None) -> Turn:
    draft = copy(draft)  # what a first try has written into it was rolled back
    if message is not None:
        message.turn_id = draft.pk
        draft.trigger_id = message.pk
        append_messages(lane, [message])
    draft.context_sequence = lane.next_sequence - 1
    draft.save(using=connections.alias(), force_insert=True)
    return draft


def require_callback(turn: Turn, callback_id: str | None) -> None:
    """Refuse another callback than the one the turn was submitted with; none is no wish.

    Raises:
        StateError: Names both.
    """
    if callback_id not in {None, turn.callback_id}:
        has = f"with callback {turn.callback_id}" if turn.callback_id else "without a callback"
        raise StateError(f"{turn.pk} was started {has}, which stays; it cannot get {callback_id} any more")


def submitted_turn(lane: Conversation, turn: Turn, *, callback_id: str | None = None) -> Turn:
    if turn.submitted_at is not None:
        require_callback(turn, callback_id)
        return turn
    if turn.status not in {TurnState.PENDING, TurnState.PAUSED}:
        raise StateError(f"{turn.pk} is {turn.status} and was never submitted; only a pending turn can be submitted")
    now = database_clock()
    is_due = turn.status == TurnState.PENDING and not turn.pending_dependencies
    move_turn(
        turn,
        turn.status,
        lane_position=place_of(lane, turn),
        submitted_at=now,
        deadline_at=deadline_of(turn, now, conf.get().TIMEOUT),
        callback_id=callback_id or turn.callback_id,
        wake_sent_at=now if is_due else None,
    )
    if is_due:
        request_wake(turn.pk)
    outbox.tell(notices.submitted(turn))
    return turn
