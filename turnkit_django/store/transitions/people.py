"""People's moves: they take rows and ids, and join the application's transaction."""

from __future__ import annotations

from collections.abc import Iterator

from turnkit_django.core.states import TurnState
from turnkit_django.errors import StateError
from turnkit_django.models import Conversation, Message, Turn
from turnkit_django.store import connections
from turnkit_django.store.locks import Locks
from turnkit_django.store.moves import transition
from turnkit_django.store.transitions.joining import hold_back
from turnkit_django.store.transitions.starting import known_turn, require_callback, stored_turn, submitted_turn
from turnkit_django.store.transitions.waking import request_wake
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
    """(new) → PENDING, WAITING. Store the turn with its message; a submission takes the next place of the lane.

    `opening` is the turn's conversation if that is new too.
    """
    if draft.root_id not in {None, draft.pk}:
        locks.root(str(draft.root_id))
    if opening is not None:
        _open(opening)
    lane = locks.lane(draft.conversation_id)
    known = known_turn(draft, message)
    if known is None:
        turn = stored_turn(lane, draft, message)
        return submitted_turn(lane, turn) if is_submission else turn
    if known.pk == draft.pk and known.submitted_at is not None:  # a commit that was not heard: nor was its wake-up
        request_wake(known.pk)
    # Prepared under the same key, perhaps told to wait or to pause.
    if is_submission and known.status in {TurnState.PENDING, TurnState.PAUSED}:
        known = submitted_turn(lane, locks.turn(known.pk), callback_id=draft.callback_id)
        hold_back(known)
    elif is_submission:
        require_callback(known, draft.callback_id)
    return known


@transition
def submit(locks: Locks, turn_id: str, *, callback_id: str | None = None) -> Turn:
    """PENDING → PENDING, WAITING. Take the next place of the lane, start the deadline, wake a worker.

    A turn that was told to wait for others waits for them first; one that was told to pause stays paused.
    """
    lane = locks.lane(turn_rows().values_list("conversation_id", flat=True).get(pk=turn_id))
    turn = submitted_turn(lane, locks.turn(turn_id), callback_id=callback_id)
    hold_back(turn)
    return turn


@transition
def retry(locks: Locks, draft: Turn) -> Turn:
    """(new) → PENDING. Submit a turn that tries again what the failed turn `retry_of` was for, with its trigger.

    An unfinished retry is returned instead of a second one.

    Raises:
        StateError: If the turn has not failed, was started by a call of another turn, or a retry of it has completed.
    """
    lane = locks.lane(draft.conversation_id)
    failed = turn_rows().get(pk=draft.retry_of_id)
    _require_failed(failed)
    for other in _retries(failed):
        if other.pk == draft.pk:  # a commit that was not heard: nor was its wake-up
            request_wake(other.pk)
            return other
        if other.status == TurnState.COMPLETED:
            raise StateError(f"{failed.pk} was tried again already: {other.pk} has completed")
        if not other.is_terminal:
            return other
    draft.trigger_id = failed.trigger_id
    return submitted_turn(lane, stored_turn(lane, draft, None))


def _require_failed(turn: Turn) -> None:
    if turn.status != TurnState.FAILED:
        raise StateError(f"{turn.pk} is {turn.status}; only a failed turn can be tried again")
    if turn.depth:
        raise StateError(
            f"{turn.pk} was started by a call of another turn, which was told of its failure; retry the root of its "
            f"tree, {turn.root_id}, if that has failed too"
        )


def _retries(failed: Turn) -> Iterator[Turn]:
    """The retries of a turn, and those of retries that have failed too. The lane is locked: there is no other."""
    for turn in turn_rows().filter(retry_of=failed.pk).order_by("lane_position"):
        yield turn
        if turn.status == TurnState.FAILED:
            yield from _retries(turn)


def _open(conversation: Conversation) -> None:
    if not Conversation.objects.using(connections.alias()).filter(pk=conversation.pk).exists():
        conversation.save(using=connections.alias(), force_insert=True)
