"""Every lock, and the one order in which they are taken: GRAPH > ROOT > LANE > TURN > EXECUTION > DELIVERY.

GRAPH is the advisory key of all waits, ROOT that of a tree's root turn; the others are rows, locked FOR NO KEY UPDATE,
by id: Django's deferred foreign keys take KEY SHARE locks at COMMIT, and with plain FOR UPDATE those deadlock outside
the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TypeVar
from zlib import crc32

from django.db.models import Model, QuerySet

from turnkit_django.core.states import OPEN
from turnkit_django.errors import LockOrderViolation
from turnkit_django.models import Conversation, Delivery, ToolExecution, Turn, Wait
from turnkit_django.store import connections, sql

_M = TypeVar("_M", bound=Model)

_ROOT_CLASS = 0x7475726E  # "turn": the package's own classes of two-int advisory keys
_GRAPH_CLASS = 0x77616974  # "wait"


class Rank(IntEnum):
    GRAPH = 1
    ROOT = 2
    LANE = 3
    TURN = 4
    EXECUTION = 5
    DELIVERY = 6


class MissedNeighbour(Exception):
    """A wait was attached between the look for waits and the locks: the whole transaction starts over."""


class Locks:
    """The locks of one transaction, in rank order.

    Args:
        skips_held: Whether a lane, turn or delivery that somebody holds is taken for one that is not there.

    Attributes:
        neighbours: What `turns_with_waiters` has locked, by id.

    Raises:
        LockOrderViolation: From each method, if a lock of the same or a higher rank is already held.
    """

    def __init__(self, *, skips_held: bool = False) -> None:
        self._highest = 0
        self._skips_held = skips_held
        self.neighbours: dict[str, Turn] = {}

    def _reach(self, rank: Rank) -> None:
        # Executions are locked under their turn's lock: those of several turns may be, in any order.
        if rank < self._highest or (rank == self._highest and rank is not Rank.EXECUTION):
            raise LockOrderViolation(f"{rank.name} asked for after {Rank(self._highest).name}")
        self._highest = rank

    def graph(self) -> None:
        """Keep those apart that attach waits, so that no two of them close a cycle together."""
        self._reach(Rank.GRAPH)
        _take_key(_GRAPH_CLASS, 0)

    def root(self, turn_id: str) -> None:
        """Keep controls and cascades of one tree apart. Released by the end of the transaction."""
        self._reach(Rank.ROOT)
        _take_key(_ROOT_CLASS, crc32(turn_id.encode()) - (1 << 31))

    def _one(self, rows: QuerySet[_M], row_id: str) -> _M:
        return rows.select_for_update(of=("self",), no_key=True, skip_locked=self._skips_held).get(pk=row_id)

    def lane(self, conversation_id: str) -> Conversation:
        """One conversation row: its numbers and who runs in it."""
        self._reach(Rank.LANE)
        return self._one(Conversation.objects.using(connections.alias()), conversation_id)

    def lanes(self, ids: Iterable[str]) -> dict[str, Conversation]:
        """Several conversation rows by id, locked in the order of their ids."""
        self._reach(Rank.LANE)
        found = _rows(Conversation.objects.using(connections.alias())).filter(pk__in=set(ids)).order_by("pk")
        return {lane.pk: lane for lane in found}

    def free_lanes(self, *, limit: int) -> list[Conversation]:
        """Lanes whose head is due, oldest work first; lanes that somebody holds just now are passed over."""
        self._reach(Rank.LANE)
        # From the oldest turn on, so that a claim looks at a few of a long backlog; a lane has one head, so none twice.
        heads = Turn.objects.using(connections.alias()).heads().select_related("conversation")
        oldest = heads.order_by("submitted_at", "pk").select_for_update(
            of=("conversation",), no_key=True, skip_locked=True
        )
        return [head.conversation for head in oldest[:limit]]

    def turn(self, turn_id: str) -> Turn:
        self._reach(Rank.TURN)
        return self._one(Turn.objects.using(connections.alias()), turn_id)

    def turn_with_waiters(self, turn_id: str) -> Turn:
        """A turn that may end: with it, in one statement, the unfinished turns that wait for it or that it waits for.

        Raises:
            MissedNeighbour: If one of those was attached since the statement began; attaching needs this turn's lock,
                so that none is afterwards.
        """
        found = self.turns_with_waiters([turn_id])
        if not found:
            raise Turn.DoesNotExist(turn_id)
        return found[0]

    def turns_with_waiters(self, ids: Sequence[str]) -> list[Turn]:
        """The same for several turns, in the order in which they are named, without those that are not there."""
        self._reach(Rank.TURN)
        rows = Turn.objects.using(connections.alias()).raw(sql.LOCK_WITH_NEIGHBOURS, {"turn_ids": list(ids)})
        self.neighbours = {turn.pk: turn for turn in rows}
        turns = [self.neighbours[turn_id] for turn_id in ids if turn_id in self.neighbours]
        for turn in turns:
            if turn.open_waiters or turn.pending_dependencies:
                _require_all(turn, self.neighbours)
        return turns

    def turns(self, chosen: QuerySet[Turn]) -> list[Turn]:
        """The chosen rows, locked in the order of their ids."""
        self._reach(Rank.TURN)
        return list(_rows(chosen).order_by("pk"))

    def idle_turns(self, chosen: QuerySet[Turn], *, limit: int) -> list[Turn]:
        """For scans: the oldest of the chosen rows that nobody works on just now."""
        self._reach(Rank.TURN)
        idle = chosen.select_for_update(of=("self",), no_key=True, skip_locked=True)
        return list(idle.order_by("submitted_at", "pk")[:limit])

    def executions(self, turn_id: str, *, statuses: Sequence[str]) -> list[ToolExecution]:
        """The executions of a turn in those states, in call order."""
        self._reach(Rank.EXECUTION)
        found = _rows(ToolExecution.objects.using(connections.alias())).filter(turn=turn_id, status__in=statuses)
        return sorted(found.order_by("pk"), key=lambda execution: execution.ordinal)

    def delivery(self, delivery_id: str) -> Delivery:
        self._reach(Rank.DELIVERY)
        return self._one(Delivery.objects.using(connections.alias()), delivery_id)

    def deliveries(self, ids: Iterable[str]) -> list[Delivery]:
        """Those of the rows that are still there, locked in the order of their ids."""
        self._reach(Rank.DELIVERY)
        return list(_rows(Delivery.objects.using(connections.alias())).filter(pk__in=list(ids)).order_by("pk"))


def idle_head(conversation_id: str) -> Turn | None:
    """The due head of a lane whose row is locked, unless somebody works on it. Stands outside of the ranks: nothing is
    waited for.
    """
    heads = Turn.objects.using(connections.alias()).heads().filter(conversation=conversation_id)
    return next(iter(heads.select_for_update(of=("self",), no_key=True, skip_locked=True)[:1]), None)


def _take_key(space: int, key: int) -> None:
    with connections.current().cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [space, key])


def _require_all(turn: Turn, found: Mapping[str, Turn]) -> None:
    edges = Wait.objects.using(connections.alias())
    waiters = edges.filter(target=turn.pk, turn__status__in=OPEN).values_list("turn_id", flat=True)
    targets = edges.filter(turn=turn.pk, target__status__in=OPEN).values_list("target_id", flat=True)
    if missed := {*waiters, *targets} - found.keys():
        raise MissedNeighbour(f"{turn.pk} is joined with {sorted(missed)} since a moment ago")


def _rows(chosen: QuerySet[_M]) -> QuerySet[_M]:
    return chosen.select_for_update(of=("self",), no_key=True)
