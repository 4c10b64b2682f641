"""Waits of turns for other turns: attached under the key of the graph, released by each target's end."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import F, Max, QuerySet

from turnkit_django.core.content import Json, as_text, text_part
from turnkit_django.core.states import OPEN, Approval, ToolState, TurnState
from turnkit_django.errors import StateError
from turnkit_django.models import Conversation, ToolExecution, Turn, Wait
from turnkit_django.models.message import Kind, Role
from turnkit_django.models.querysets import ClockTime
from turnkit_django.store import connections, notices, outbox, sql
from turnkit_django.store.envelopes import envelope
from turnkit_django.store.locks import Locks
from turnkit_django.store.moves import fetched, maintenance, transition
from turnkit_django.store.transitions.waking import request_wake
from turnkit_django.store.transitions.writes import (
    Fields,
    append_messages,
    database_clock,
    execution_rows,
    move_turn,
    own_message,
    turn_rows,
)


@transition
def open_waits(locks: Locks, turn_id: str, target_ids: Sequence[str]) -> Turn:
    """PENDING → PENDING, WAITING. Keep a turn that nobody has started from starting until the targets have ended.

    Raises:
        StateError: If the turn is not pending or was started, or a target cannot be waited for; no wait is stored.
    """
    locks.graph()
    rows = {turn.pk: turn for turn in locks.turns(turn_rows().filter(pk__in=[turn_id, *target_ids]))}
    if turn_id not in rows:
        raise Turn.DoesNotExist(turn_id)
    turn = rows[turn_id]
    missing = set(target_ids) - _joined(turn)
    if not missing:
        return turn
    if turn.status != TurnState.PENDING or turn.started_at is not None:
        how = "was started" if turn.status == TurnState.PENDING else f"is {turn.status}"
        raise StateError(f"{turn_id} {how}; only a pending turn that nobody has started can be told to wait for others")
    if gone := sorted(missing - rows.keys()):
        raise StateError(f"{turn_id} cannot wait for {', '.join(gone)}: not in the database")
    attach(turn, [rows[target_id] for target_id in target_ids])
    hold_back(turn)
    return turn


def attach(turn: Turn, targets: Sequence[Turn], *, execution: ToolExecution | None = None) -> int:
    """Store the waits of a turn for others; how many of its dependencies are open afterwards.

    The caller holds the key of the graph, taken before all other locks and in a statement of its own, and the rows of
    the turn and of all targets, locked in one statement by id. The turn's status stays: whether it waits is the
    caller's to say. Waits that exist already stay as they are, with their execution.

    Args:
        execution: The call that waits; without one the results are told to the turn in a message at its next claim.

    Raises:
        StateError: Names the turn and the target that cannot be waited for; nothing was written.
    """
    for target in targets:
        _require_endable(turn, target)
    _require_no_cycle(turn, [target for target in targets if not target.is_terminal])
    known = _joined(turn)
    added = list({target.pk: target for target in targets if target.pk not in known}.values())
    first = _edges().filter(turn=turn.pk).aggregate(last=Max("ordinal", default=0))["last"] + 1
    _edges().bulk_create(
        Wait(turn_id=turn.pk, target_id=target.pk, tool_execution=execution, ordinal=ordinal)
        for ordinal, target in enumerate(added, start=first)
    )
    awaited = [target.pk for target in added if not target.is_terminal]
    turn_rows().filter(pk__in=awaited).update(open_waiters=F("open_waiters") + 1)
    count = turn.pending_dependencies + len(awaited)
    has_input = turn.has_wait_input or (execution is None and bool(added))
    move_turn(turn, turn.status, pending_dependencies=count, has_wait_input=has_input)
    return count


def hold_back(turn: Turn) -> None:
    """A submitted turn with open dependencies waits; the others stay as they are."""
    if turn.status == TurnState.PENDING and turn.submitted_at is not None and turn.pending_dependencies:
        move_turn(turn, TurnState.WAITING, wake_sent_at=None)
        outbox.tell(notices.waiting(turn))


def release_waiters(locks: Locks, turn: Turn) -> None:
    """The turn has ended: take it from the dependencies of those that wait for it, and its own wait from its targets.

    Its row was locked by `turn_with_waiters`.
    """
    if not (turn.open_waiters or turn.pending_dependencies):
        return
    move_turn(turn, turn.status, open_waiters=0, pending_dependencies=0)
    waiting = set(_edges().filter(target=turn.pk).values_list("turn_id", flat=True))
    awaited = _joined(turn)
    for other in locks.neighbours.values():
        if other.pk in waiting and not other.is_terminal:
            _take_one_off(other)
        if other.pk in awaited and not other.is_terminal:
            move_turn(other, other.status, open_waiters=max(other.open_waiters - 1, 0))


def tell_results(lane: Conversation, turn: Turn) -> None:
    """Store, as a message of the turn, how the turns have ended that the application told it to wait for."""
    waits = _edges().filter(turn=turn.pk, tool_execution__isnull=True).select_related("target")
    ends: list[Json] = [envelope(wait.target) for wait in waits.order_by("ordinal", "pk")]
    if ends:  # all of them may have been erased
        text = as_text({"wait_results": ends})
        append_messages(lane, [own_message(turn, Role.USER, Kind.TEXT, [text_part(text)])])


@maintenance
def recount(locks: Locks, turn_id: str) -> Turn | None:
    """WAITING → WAITING. Targets were erased, so that nobody counts them down. None: the count is right."""
    turn = locks.turn(turn_id)
    asked = execution_rows().filter(turn=turn_id, status=ToolState.PENDING, approval=Approval.REQUIRED)
    count = _edges().filter(turn=turn_id, target__status__in=OPEN).count() + asked.count()
    if turn.status != TurnState.WAITING or turn.pending_dependencies <= count:
        return None
    move_turn(turn, TurnState.WAITING, pending_dependencies=count)
    return turn


def _edges() -> QuerySet[Wait]:
    return Wait.objects.using(connections.alias())


def _joined(turn: Turn) -> set[str]:
    return set(_edges().filter(turn=turn.pk).values_list("target_id", flat=True))


def _take_one_off(waiter: Turn) -> None:
    count = max(waiter.pending_dependencies - 1, 0)
    is_early = waiter.not_before is not None and waiter.not_before > database_clock()
    is_ready = waiter.status == TurnState.WAITING and not count and not is_early
    state = TurnState.PENDING if is_ready else waiter.status
    fields: Fields = {"not_before": None, "wake_sent_at": ClockTime()} if is_ready else {}
    move_turn(waiter, state, pending_dependencies=count, **fields)
    if is_ready:
        request_wake(waiter.pk)
        outbox.tell(notices.readied(waiter))


def _require_endable(turn: Turn, target: Turn) -> None:
    problem = _problem(turn, target)
    if problem:
        raise StateError(f"{turn.pk} cannot wait for {target.pk}{problem}")


def _problem(turn: Turn, target: Turn) -> str:
    if target.pk == turn.pk:
        return ": it is itself"
    if target.is_terminal:
        return ""
    if target.submitted_at is None:
        return f", which is {target.status} and was not submitted: submit it first"
    if target.conversation_id == turn.conversation_id:
        return (
            f", which is {target.status} in the same conversation {turn.conversation_id}: turns of one conversation "
            "run one after another anyway"
        )
    return ""


def _require_no_cycle(turn: Turn, targets: Sequence[Turn]) -> None:
    if not targets:
        return
    starts = sorted({target.conversation_id for target in targets})
    found = {start for (start,) in fetched(sql.REACHED_LANES, {"starts": starts, "lane": turn.conversation_id})}
    if target := next((target for target in targets if target.conversation_id in found), None):
        raise StateError(
            f"{turn.pk} cannot wait for {target.pk}: that would close a cycle, because an unfinished turn of "
            f"{target.conversation_id} waits, perhaps through others, for one of {turn.conversation_id}"
        )
