"""One claimed turn in a worker's hands: what is known of it between two commits."""

from __future__ import annotations

import time
from dataclasses import dataclass

from django.utils import timezone

from turnkit_django import conf
from turnkit_django.agents import Agent
from turnkit_django.core.content import Json, clean_json, clean_text
from turnkit_django.core.ids import new_token
from turnkit_django.core.states import SETTLED, Phase, ToolState
from turnkit_django.engine.decide import CallView, Snapshot
from turnkit_django.engine.heartbeat import Held
from turnkit_django.models import Conversation, ToolExecution, Turn
from turnkit_django.store import reads
from turnkit_django.store.claims import Claimed, Reservation
from turnkit_django.store.records import AttemptEnd, Reply, Settlement


@dataclass(eq=False, slots=True)
class Running:
    """The state that the acts of one turn share. Only what a transition has recorded is written into it.

    Attributes:
        calls: All executions of the turn, in call order.
        is_sent: Whether the reserved model call may have reached the provider.
        broken_reason: Why the last reply was cut or unusable.
        broken_limit: How many such replies in a row end the turn.
    """

    held: Held
    agent: Agent
    turn: Turn
    conversation: Conversation
    calls: list[ToolExecution]
    deadline: float | None
    is_sent: bool = False
    broken_reason: str = "unusable replies"
    broken_limit: int = 0

    @classmethod
    def of(cls, claimed: Claimed, held: Held, agent: Agent) -> Running:
        turn = claimed.turn
        left = None if turn.deadline_at is None else (turn.deadline_at - claimed.now).total_seconds()
        return cls(
            held=held,
            agent=agent,
            turn=turn,
            conversation=claimed.conversation,
            # A first claim has none yet; this saves a query in every ordinary turn.
            calls=reads.calls(turn.pk) if turn.revision > 1 else [],
            deadline=None if left is None else time.monotonic() + left,
            broken_limit=conf.get().MAX_BROKEN_REPLIES,
        )

    @property
    def phase(self) -> Phase:
        return Phase(self.turn.phase)

    @property
    def is_overdue(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    @property
    def attempt_end(self) -> AttemptEnd:
        """How the open model call ends if the turn ends now."""
        return AttemptEnd.LOST if self.is_sent else AttemptEnd.UNSENT

    def snapshot(self) -> Snapshot:
        return Snapshot(
            phase=self.phase,
            is_pause_requested=self.held.claim.is_pause_requested,
            is_reserved=self.turn.attempt_id is not None,
            is_overdue=self.is_overdue,
            max_iterations=self.turn.max_iterations,
            broken_replies=self.turn.broken_replies,
            max_broken_replies=self.broken_limit,
            broken_reason=self.broken_reason,
            calls=[CallView(call.pk, call.status) for call in self.calls],
        )

    def open_calls(self) -> list[ToolExecution]:
        return [call for call in self.calls if call.status not in SETTLED]

    def call(self, execution_id: str) -> ToolExecution:
        return next(call for call in self.calls if call.pk == execution_id)

    def reservation(self) -> Reservation | None:
        """The next model call, if the turn may make one more."""
        if self.turn.iterations >= self.turn.max_iterations:
            return None
        return Reservation(request_id=new_token(), attempt_id=new_token())

    def started(self, execution: ToolExecution) -> None:
        """A write has recorded its start. The row's time is the database's, a moment earlier than this one."""
        execution.status = ToolState.RUNNING.value
        execution.started_at = execution.started_at or timezone.now()

    def settled(self, execution: ToolExecution, settlement: Settlement) -> None:
        """A write has recorded its outcome."""
        execution.status = settlement.status
        execution.result, execution.error = settlement.result, settlement.error

    def billed(self, reply: Reply) -> None:
        """What the write just recorded has added to the turn's bill."""
        for name, count in reply.usage.counts().items():
            setattr(self.turn, name, getattr(self.turn, name) + count)
        before = self.turn.cost
        self.turn.cost = None if before is None or reply.cost is None else before + reply.cost

    def moved_to(self, phase: Phase, reservation: Reservation | None) -> None:
        """What the write just recorded says about the next step."""
        self.turn.phase = phase.value
        self.turn.attempt_id = reservation.attempt_id if reservation else None
        if reservation:
            self.turn.request_id = reservation.request_id
            self.turn.iterations += 1


def error(error_type: str, message: str, **details: Json) -> dict[str, Json]:
    """An error as rows keep it: cleaned of secrets, and of what PostgreSQL cannot hold."""
    return {"type": error_type, "message": clean_text(conf.clean(message)), "details": clean_json(details)}


def said(problem: BaseException) -> str:
    """The text of an exception, whatever its `__str__` does."""
    try:
        return str.__str__(str(problem))  # a subclass of str may do anything when it is formatted
    except BaseException as broken:
        return f"(its text could not be made: {type(broken).__name__})"
