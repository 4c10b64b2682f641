"""Claims: a worker, or the calling process, takes turns, keeps them, and knows them again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import DatabaseError

from turnkit_django import conf
from turnkit_django.core import ids
from turnkit_django.core.states import Phase, TurnState
from turnkit_django.errors import StateError, UnclaimableTurn
from turnkit_django.models import Conversation, Message, Turn
from turnkit_django.store import connections, notices, outbox, reads, sql
from turnkit_django.store.claims import Claim, Claimed, Holder
from turnkit_django.store.locks import Locks
from turnkit_django.store.moves import claiming, maintenance
from turnkit_django.store.transitions.inbox import mark_read
from turnkit_django.store.transitions.joining import tell_results
from turnkit_django.store.transitions.starting import known_turn, stored_turn
from turnkit_django.store.transitions.writes import (
    OPEN_CALLS,
    Fields,
    database_clock,
    deadline_of,
    execution_rows,
    move_turn,
    place_of,
    turn_rows,
)

_INLINE_SECONDS = 300  # somebody waits for the answer


def claim(holder: Holder, *, spare: int = 0) -> list[Claimed]:
    """Claim due heads of lanes, oldest submission first: at most one for each token of the holder.

    Args:
        spare: How many lanes more to look at, in case somebody has locked the heads of the first ones.
    """
    return claim_due(lambda: _held_under(holder) or None, holder, spare=spare)


def claim_this(turn_id: str, holder: Holder) -> Claimed:
    """Claim one turn that was not submitted, to run it in this process.

    Raises:
        LaneBusy: If its conversation has another started turn or submitted work.
        StateError: If it is submitted, started or ended.
    """
    return claim_inline(lambda: first_held_under(holder), turn_id, holder)


def claim_new(draft: Turn, holder: Holder, *, message: Message | None) -> Claimed | Turn:
    """Store a turn and claim it, to run it in this process; the turn itself if its key is known and it has started.

    Raises:
        LaneBusy: If its conversation has a started turn or submitted work; nothing is stored.
        StateError: If its key was used for another text.
    """
    return start_inline(lambda: first_held_under(holder), draft, holder, message=message)


@claiming
def claim_due(locks: Locks, holder: Holder, *, spare: int) -> list[Claimed]:
    """PENDING → RUNNING. Fix what the turn sees, count its next model call, void its wake-up."""
    count = len(holder.tokens)
    lanes = {lane.pk: lane for lane in locks.free_lanes(limit=count + spare)}
    if not lanes:
        return []
    heads = locks.idle_turns(turn_rows().heads().filter(conversation__in=lanes), limit=count)
    claimed = []
    for turn, token in zip(heads, holder.tokens, strict=False):
        try:
            claimed.append(_take(lanes[turn.conversation_id], turn, holder, token))
        except DatabaseError as problem:
            if connections.is_repeatable(problem):
                raise
            raise UnclaimableTurn(turn.pk) from problem
    return claimed


@claiming
def claim_inline(locks: Locks, turn_id: str, holder: Holder) -> Claimed:
    """PENDING → RUNNING. The same for a turn that was not submitted, if its lane is free."""
    lane = locks.lane(turn_rows().values_list("conversation_id", flat=True).get(pk=turn_id))
    turn = locks.turn(turn_id)
    if turn.status != TurnState.PENDING or turn.submitted_at is not None:
        how = "submitted: a worker runs it" if turn.submitted_at else turn.status
        raise StateError(f"{turn.pk} is {how}; only a pending turn that was not submitted can be run here")
    if turn.started_at is None:  # otherwise it is what keeps the lane busy: it was paused
        reads.require_idle(lane.pk, unless=turn.pk)
    return take_here(lane, turn, holder)


@claiming
def start_inline(locks: Locks, draft: Turn, holder: Holder, *, message: Message | None) -> Claimed | Turn:
    """(new) → RUNNING. Store the turn with its message and claim it in one, if its lane is free."""
    lane = locks.lane(draft.conversation_id)
    known = known_turn(draft, message)
    if known is not None and (known.status != TurnState.PENDING or known.submitted_at is not None):
        return known
    reads.require_idle(lane.pk, unless=known.pk if known else "")
    return take_here(lane, locks.turn(known.pk) if known else stored_turn(lane, draft, message), holder)


def take_here(lane: Conversation, turn: Turn, holder: Holder) -> Claimed:
    if turn.pending_dependencies:
        raise StateError(
            f"{turn.pk} waits for {turn.pending_dependencies} turns that have not ended, and nobody waits inline; "
            "submit it: a worker runs it when they have"
        )
    move_turn(turn, TurnState.PENDING, lane_position=place_of(lane, turn))
    return _take(lane, turn, holder, holder.tokens[0])


def _take(lane: Conversation, turn: Turn, holder: Holder, token: str) -> Claimed:
    now = database_clock()
    first = turn.started_at is None
    if turn.phase == Phase.TOOLS and not execution_rows().filter(turn=turn.pk, status__in=OPEN_CALLS).exists():
        turn.phase = Phase.MODEL
    fields: Fields = {
        "phase": turn.phase,
        "revision": turn.revision + 1,
        "claim_token": token,
        "claimed_by": holder.name,
        "claimed_at": now,
        "lease_expires_at": now + timedelta(seconds=holder.lease_seconds),
        "started_at": turn.started_at or now,
        "not_before": None,
        "next_check_at": None,
        "wake_sent_at": None,
    }
    if first and turn.submitted_at is not None:
        fields["context_sequence"] = lane.next_sequence - 1
    if turn.submitted_at is None:
        fields["deadline_at"] = deadline_of(turn, now, conf.get().TIMEOUT or _INLINE_SECONDS)
    if turn.phase == Phase.MODEL and turn.iterations < turn.max_iterations:
        fields |= _reservation(lane, turn, now, boundary=fields.get("context_sequence", turn.context_sequence))
    if turn.has_wait_input:
        fields["has_wait_input"] = False
        tell_results(lane, turn)
    move_turn(turn, TurnState.RUNNING, **fields)
    outbox.tell(notices.started(turn, is_first=first))
    return _claimed(turn, lane, now)


def _reservation(lane: Conversation, turn: Turn, now: datetime, *, boundary: int) -> Fields:
    """The next model call, which reads what has been delivered meanwhile."""
    fields: Fields = {
        "iterations": turn.iterations + 1,
        "request_id": ids.new_token(),
        "attempt_id": ids.new_token(),
        "attempt_started_at": now,
    }
    if lane.unread_count:
        fields["hops"] = mark_read(lane, turn, boundary=boundary, request_id=fields["request_id"])
    return fields


def _claimed(turn: Turn, lane: Conversation, now: datetime) -> Claimed:
    held = Claim(turn.pk, lane.pk, turn.root_id or turn.pk, turn.claim_token or "", turn.revision, turn.agent_name)
    return Claimed(held, turn, lane, now)


def first_held_under(holder: Holder) -> Claimed | None:
    """What had been claimed unheard."""
    return next(iter(_held_under(holder)), None)


def _held_under(holder: Holder) -> list[Claimed]:
    held = turn_rows().filter(claim_token__in=holder.tokens, status=TurnState.RUNNING).select_related("conversation")
    return [_claimed(turn, turn.conversation, database_clock()) for turn in held]


@maintenance
def renew(locks: Locks, claims: Sequence[Claim], *, lease_seconds: int) -> set[str]:
    """RUNNING → RUNNING. Prolong leases; the ids of the turns that were not locked by others just now."""
    values: Fields = {
        "turn_ids": [held.turn_id for held in claims],
        "tokens": [held.token for held in claims],
        "lease_seconds": lease_seconds,
    }
    with connections.current().cursor() as cursor:
        cursor.execute(sql.RENEW_LEASES, values)
        return {row[0] for row in cursor.fetchall()}
