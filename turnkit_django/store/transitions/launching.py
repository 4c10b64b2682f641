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
from turnkit_django.store.transitions.working import counted, held_turn, require_held
from turnkit_django.store.transitions.writes import execution_rows, let_go, move_turn, turn_rows


@worker_move
def launch(locks: Locks, held: Claim, *, children: Sequence[NewChild]) -> None:
    """RUNNING → WAITING, PAUSED. Store and submit what its calls ask for; any worker goes on when all have ended.

    A turn that was told to pause starts nothing.
    """
    locks.root(held.root_turn_id)
    _lane, turn = held_turn(locks, held)
    if turn.pause_requested:
        let_go(turn, TurnState.PAUSED, notices.paused, **counted(turn))
        return
    for child in children:
        _submit_child(turn, child, is_awaited=True)
    Wait.objects.using(connections.alias()).bulk_create(
        Wait(turn_id=turn.pk, target_id=child.turn.pk, tool_execution_id=child.execution_id) for child in children
    )
    count = turn.pending_dependencies + len(children)
    let_go(turn, TurnState.WAITING, notices.waiting, pending_dependencies=count, **counted(turn))


@worker_move(ends_claim=False)
def launch_detached(locks: Locks, held: Claim, *, child: NewChild) -> bool:
    """RUNNING → RUNNING. Store and submit what a call asks for, unless the turn was told to pause; whether it was."""
    locks.root(held.root_turn_id)
    _lane, turn = held_turn(locks, held)
    if not turn.pause_requested:
        _submit_child(turn, child, is_awaited=False)
    move_turn(turn, TurnState.RUNNING, **counted(turn))
    return not turn.pause_requested


@worker_move
def join(locks: Locks, held: Claim, execution_id: str, *, target_ids: Sequence[str], arguments: Json) -> None:
    """RUNNING → WAITING, PENDING, PAUSED. A call waits for other turns; any worker goes on when all have ended.

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
        let_go(turn, TurnState.WAITING, notices.waiting, **counted(turn))
        return
    # the last of them has ended just now
    let_go(turn, TurnState.PENDING, notices.readied, **counted(turn))
    if turn.status == TurnState.PENDING:
        wake_turns(turn)


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
    draft.root_id = parent.root_id or parent.pk  # as it is now: the root may have been deleted under its tree
    draft.open_waiters = waiters
    turn = stored_turn(lane, draft, copy(child.message))
    _note_start(child.execution_id, child.arguments)
    outbox.tell(notices.delegated(parent, child))
    return lane, turn


def _note_start(execution_id: str, arguments: Json) -> None:
    """The call stays pending, so that a recovery resumes it; its start says that it was acted upon already."""
    execution_rows().filter(pk=execution_id).update(started_at=ClockTime(), arguments=arguments)
