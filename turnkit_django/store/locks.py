"""Every lock, and the one order in which they are taken: ROOT > LANE > TURN > EXECUTION.

ROOT is an advisory key of a tree's root turn; the others are rows, locked FOR NO KEY UPDATE, by id: Django's deferred
foreign keys take KEY SHARE locks at COMMIT, and with plain FOR UPDATE those deadlock outside the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TypeVar
from zlib import crc32

from django.db.models import Model, QuerySet

from turnkit_django.errors import LockOrderViolation
from turnkit_django.models import Conversation, ToolExecution, Turn
from turnkit_django.store import connections

_M = TypeVar("_M", bound=Model)

_ROOT_CLASS = 0x7475726E  # "turn": the package's own class of two-int advisory keys


class Rank(IntEnum):
    ROOT = 1
    LANE = 2
    TURN = 3
    EXECUTION = 4


class Locks:
    """The locks of one transaction, in rank order.

    Raises:
        LockOrderViolation: From each method, if a lock of the same or a higher rank is already held.
    """

    def __init__(self) -> None:
        self._highest = 0

    def _reach(self, rank: Rank) -> None:
        if rank <= self._highest:
            raise LockOrderViolation(f"{rank.name} asked for after {Rank(self._highest).name}")
        self._highest = rank

    def root(self, turn_id: str) -> None:
        """Keep controls and cascades of one tree apart. Released by the end of the transaction."""
        self._reach(Rank.ROOT)
        with connections.current().cursor() as cursor:
            key = crc32(turn_id.encode()) - (1 << 31)
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_ROOT_CLASS, key])

    def lane(self, conversation_id: str) -> Conversation:
        """One conversation row: its numbers and who runs in it."""
        self._reach(Rank.LANE)
        return _rows(Conversation.objects.using(connections.alias())).get(pk=conversation_id)

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
        return _rows(Turn.objects.using(connections.alias())).get(pk=turn_id)

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


def _rows(chosen: QuerySet[_M]) -> QuerySet[_M]:
    return chosen.select_for_update(of=("self",), no_key=True)
