"""The fence against ghosts: who holds a turn."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from turnkit_django.errors import StateError
from turnkit_django.models import Conversation, Turn
from turnkit_django.store.outbox import News


@dataclass(frozen=True, slots=True)
class Claim:
    """Proof that this worker holds a turn. Every write of a worker carries it.

    Attributes:
        token: Fresh with each claim.
        revision: The turn's count of worker writes, as this worker knows it.
        agent_name: For the events that its writes tell.
        is_pause_requested: Whether somebody had told the turn to pause when it was last written.
    """

    turn_id: str
    conversation_id: str
    root_turn_id: str
    token: str
    revision: int
    agent_name: str
    is_pause_requested: bool = False

    def after_write(self, *, is_pause_requested: bool = False) -> Claim:
        return replace(self, revision=self.revision + 1, is_pause_requested=is_pause_requested)

    def with_pause(self, *, is_requested: bool) -> Claim:
        return replace(self, is_pause_requested=is_requested)


class PauseRetracted(StateError):
    """Nobody wants the turn to pause any more; nothing was written."""


class CallGone(StateError):
    """The row of a call was deleted or settled by somebody else; all else that the write brings is stored.

    Attributes:
        claim: As it is in force after the write.
    """

    def __init__(self, message: str, before: Claim) -> None:
        super().__init__(message)
        self.claim = before.after_write()


@dataclass(frozen=True, slots=True)
class Reservation:
    """One model call, counted before it is sent.

    Attributes:
        request_id: Names the request in its metadata; 32 hex digits.
        attempt_id: Names this try of it; 32 hex digits.
    """

    request_id: str
    attempt_id: str


@dataclass(frozen=True, slots=True)
class Holder:
    """Who claims.

    Attributes:
        name: `host:pid:slot`.
        lease_seconds: How long a claim lives without renewal.
        tokens: As many fresh tokens as turns may be claimed.
    """

    name: str
    lease_seconds: int
    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a worker gets with a claim: the rows as they are now, and the time on the database's clock.

    Attributes:
        news: The events of the claim. The holder sends them once it renews the lease, for receivers may be slow.
    """

    claim: Claim
    turn: Turn
    conversation: Conversation
    now: datetime
    news: News = field(default_factory=News)
