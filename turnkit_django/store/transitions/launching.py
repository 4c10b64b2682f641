"""Turns that calls of other turns ask for: stored once, found again by the call."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from turnkit_django.core.content import Json
from turnkit_django.core.states import TurnState
from turnkit_django.errors import LostClaim
from turnkit_django.models import Conversation, Turn, Wait
from turnkit_django.models.querysets import ClockTime
from turnkit_django.store import connections, notices, outbox
from turnkit_django.store.claims import Claim, Claimed, Holder
from turnkit_django.store.locks import Locks
from turnkit_django.store.moves import claiming, erased, worker_move
from turnkit_django.store.records import NewChild
from turnkit_django.store.transitions.claiming import first_held_under, take_here
from turnkit_django.store.transitions.joining import attach
from turnkit_django.store.transitions.starting import stored_turn, submitted_turn
from turnkit_django.store.transitions.waking import wake_turns
from turnkit_django.store.transitions.working import held_turn, require_held, without_claim
from turnkit_django.store.transitions.writes import execution_rows, move_turn, turn_rows


@worker_move
def launch(locks: Locks, held: Claim, *, children: Sequence[NewChild]) -> None:
    """RUNNING → WAITING. Store and submit what its calls ask for; it goes on, in any worker, when all have ended."""
    locks.root(held.root_turn_id)
    _lane, turn = held_turn(locks, held)
    for child in children:
        _submit_child(turn, child, is_awaited=True)
    Wait.objects.using(connections.alias()).bulk_create(
        Wait(turn_id=turn.pk, target_id=child.turn.pk, tool_execution_id=child.execution_id) for child in children
    )
    count = turn.pending_dependencies + len(children)
    move_turn(turn, TurnState.WAITING, pending_dependencies=count, **without_claim(turn))
    outbox.tell(notices.waiting(turn))


@worker_move(ends_claim=False)
def launch_detached(locks: Locks, held: Claim, *, child: NewChild) -> None:
    """RUNNING → RUNNING. Store and submit what a call asks for; the turn goes on at once."""
    locks.root(held.root_turn_id)
    _lane, turn = held_turn(locks, held)
    _submit_child(turn, child, is_awaited=False)
    move_turn(turn, TurnState.RUNNING, revision=turn.revision + 1)


@worker_move
def join(locks: Locks, held: Claim, execution_id: str, *, target_ids: Sequence[str], arguments: Json) -> None:
    """RUNNING → WAITING, PENDING. A call waits for other turns; the turn goes on, in any worker, when all have ended.

    Raises:
        StateError: If one of them cannot be waited for; nothing was written.
    """
    locks.graph()
    locks.lane(held.conversation_id)
    rows = {turn.pk: turn for turn in locks.turns(turn_rows().filter(pk__in=[held.turn_id, *target_ids]))}
    if held.turn_id not in rows:
        raise erased(held)
    turn = rows[held.turn_id]
    require_held(turn, held)
    execution = execution_rows().get(pk=execution_id)
    open_count = attach(turn, [rows[target] for target in target_ids if target in rows], execution=execution)
    _note_start(execution_id, arguments)
    if open_count:
        move_turn(turn, TurnState.WAITING, **without_claim(turn))
        outbox.tell(notices.waiting(turn))
    else:  # the last of them has ended just now
        move_turn(turn, TurnState.PENDING, **without_claim(turn))
        wake_turns(turn)
        outbox.tell(notices.readied(turn))


def claim_child(child: NewChild, holder: Holder, *, parent_token: str) -> Claimed:
    """Store what a call of an inline turn asks for and claim it, to run it in this process. Raises as `start_child`."""
    return start_child(lambda: first_held_under(holder), child, holder, parent_token=parent_token)


@claiming
def start_child(locks: Locks, child: NewChild, holder: Holder, *, parent_token: str) -> Claimed:
    """(new) → RUNNING. Store what a call of an inline turn asks for and claim it in one, to run it here.

    Raises:
        LostClaim: If the parent is no longer held under that token.
    """
    locks.root(str(child.turn.root_id))
    parent = locks.turn(str(child.turn.parent_id))
    if parent.claim_token != parent_token:
        raise LostClaim(f"turn {parent.pk} is no longer held under token {parent_token[:8]}…; nothing was written")
    lane, turn = _stored_child(parent, child)
    return take_here(lane, turn, holder)


def _submit_child(parent: Turn, child: NewChild, *, is_awaited: bool) -> None:
    submitted_turn(*_stored_child(parent, child, waiters=int(is_awaited)))


def _stored_child(parent: Turn, child: NewChild, *, waiters: int = 0) -> tuple[Conversation, Turn]:
    lane, draft = copy(child.conversation), copy(child.turn)  # what a first try has written into them was rolled back
    lane.save(using=connections.alias(), force_insert=True)
    draft.open_waiters = waiters
    turn = stored_turn(lane, draft, copy(child.message))
    _note_start(child.execution_id, child.arguments)
    outbox.tell(notices.delegated(parent, child))
    return lane, turn


def _note_start(execution_id: str, arguments: Json) -> None:
    """The call stays pending, so that a recovery resumes it; its start says that it was acted upon already."""
    execution_rows().filter(pk=execution_id).update(started_at=ClockTime(), arguments=arguments)
