"""People's moves: they take rows and ids, and join the application's transaction."""

from __future__ import annotations

from turnkit_django.core.content import Json
from turnkit_django.core.states import TurnState
from turnkit_django.models import Conversation, Message, Turn
from turnkit_django.store import connections
from turnkit_django.store.locks import Locks
from turnkit_django.store.moves import transition
from turnkit_django.store.records import AttemptEnd
from turnkit_django.store.transitions.ending import end_turn
from turnkit_django.store.transitions.starting import known_turn, stored_turn, submitted_turn
from turnkit_django.store.transitions.waking import request_wake, wake_lane
from turnkit_django.store.transitions.writes import (
    append_messages,
    turn_rows,
)


@transition
def open_conversation(locks: Locks, conversation: Conversation) -> Conversation:
    """(new). Store a conversation."""
    _open(conversation)
    return conversation


@transition
def say(locks: Locks, message: Message) -> Message:
    """(new). Store what a user said; nothing runs."""
    lane = locks.lane(message.conversation_id)
    if not Message.objects.using(connections.alias()).filter(pk=message.pk).exists():
        append_messages(lane, [message])
    return message


@transition
def start(
    locks: Locks, draft: Turn, *, message: Message | None, is_submission: bool, opening: Conversation | None = None
) -> Turn:
    """(new) → PENDING. Store the turn with its message; a submission takes the next place of the lane.

    `opening` is the turn's conversation if that is new too.
    """
    if opening is not None:
        _open(opening)
    lane = locks.lane(draft.conversation_id)
    known = known_turn(draft, message)
    if known is None:
        known = stored_turn(lane, draft, message)
    elif known.pk == draft.pk and known.submitted_at is not None:  # a commit that was not heard: nor was its wake-up
        request_wake(known.pk)
    return submitted_turn(lane, known) if is_submission and known.status == TurnState.PENDING else known


@transition
def submit(locks: Locks, turn_id: str) -> Turn:
    """PENDING → PENDING. Take the next place of the lane, start the clock of the deadline, wake a worker."""
    lane = locks.lane(turn_rows().values_list("conversation_id", flat=True).get(pk=turn_id))
    return submitted_turn(lane, locks.turn(turn_id))


@transition
def cancel(locks: Locks, turn_id: str) -> Turn | None:
    """PENDING, RUNNING, WAITING, PAUSED → CANCELLED. Open calls are closed, the claim is void, the lane is free.

    None: it had ended already.
    """
    root_id, conversation_id = turn_rows().values_list("root_id", "conversation_id").get(pk=turn_id)
    locks.root(root_id or turn_id)
    lane = locks.lane(conversation_id)
    turn = locks.turn(turn_id)
    if turn.is_terminal:
        return None
    error: Json = {"type": "Cancelled", "message": "the turn was cancelled", "details": {}}
    end_turn(locks, lane, turn, TurnState.CANCELLED, error=error, attempt=AttemptEnd.LOST)
    wake_lane(lane.pk)
    return turn


def _open(conversation: Conversation) -> None:
    if not Conversation.objects.using(connections.alias()).filter(pk=conversation.pk).exists():
        conversation.save(using=connections.alias(), force_insert=True)
