"""Events of turns: a submission, or a change of state."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from turnkit_django.core.events.base import Billed, Explained, TurnEvent


@dataclass(frozen=True, kw_only=True)
class TurnSubmitted(TurnEvent):
    """A turn has taken its place in the lane: a worker will run it. Once a turn, however often it is submitted.

    Attributes:
        model: The model it will ask.
    """

    type = "turn.submitted"
    model: str


@dataclass(frozen=True, kw_only=True)
class TurnStarted(TurnEvent):
    """A turn was claimed: by a worker, or by the process that runs it inline. Again after each release, recovery
    or parking.

    Attributes:
        model: The model it asks.
        worker: Who claimed it: `host:pid:slot`.
        is_first: Whether nobody had claimed it before.
    """

    type = "turn.started"
    model: str
    worker: str
    is_first: bool


@dataclass(frozen=True, kw_only=True)
class TurnCompleted(Billed, TurnEvent):
    """A turn has ended with an answer, which is stored.

    Attributes:
        output_chars: Characters of `output_text`.
    """

    type = "turn.completed"
    output_chars: int


@dataclass(frozen=True, kw_only=True)
class TurnFailed(Explained, Billed, TurnEvent):
    """A turn has ended without an answer: a limit, a refusal, a model or a worker that failed for good."""

    type = "turn.failed"


@dataclass(frozen=True, kw_only=True)
class TurnCancelled(Billed, TurnEvent):
    """Somebody has ended a turn. Not again if it is cancelled again."""

    type = "turn.cancelled"


@dataclass(frozen=True, kw_only=True)
class TurnStale(Explained, Billed, TurnEvent):
    """Maintenance has ended an inline turn whose process died."""

    type = "turn.stale"


@dataclass(frozen=True, kw_only=True)
class TurnParked(Explained, TurnEvent):
    """A turn waits, without a worker, because its provider wants to be asked later.

    Attributes:
        not_before: When it will be ready again.
    """

    type = "turn.parked"
    not_before: datetime


@dataclass(frozen=True, kw_only=True)
class TurnPauseRequested(TurnEvent):
    """Somebody has told a running turn to pause: it does so before its next step."""

    type = "turn.pause_requested"


@dataclass(frozen=True, kw_only=True)
class TurnPaused(TurnEvent):
    """A turn stands still, without a worker, until somebody resumes it."""

    type = "turn.paused"


@dataclass(frozen=True, kw_only=True)
class TurnResumed(TurnEvent):
    """Somebody has let a paused turn go on, or has taken back that a running one should pause."""

    type = "turn.resumed"


@dataclass(frozen=True, kw_only=True)
class TurnWaiting(TurnEvent):
    """A turn waits, without a worker, for others to end.

    Attributes:
        count: How many have not ended.
    """

    type = "turn.waiting"
    count: int


@dataclass(frozen=True, kw_only=True)
class TurnReady(TurnEvent):
    """What a waiting turn waited for is there, or its time has come: it is pending again."""

    type = "turn.ready"


@dataclass(frozen=True, kw_only=True)
class TurnReleased(Explained, TurnEvent):
    """A worker has given a turn back: after its own fault, or because it was told to stop.

    Attributes:
        not_before: The end of the back-off after a fault; None if the turn may be claimed at once.
    """

    type = "turn.released"
    not_before: datetime | None


@dataclass(frozen=True, kw_only=True)
class TurnRecovered(Explained, TurnEvent):
    """Maintenance has taken a submitted turn from a dead worker: it is pending again.

    Attributes:
        attempts: Claims of this turn that have ended without progress.
        not_before: The end of the back-off.
    """

    type = "turn.recovered"
    attempts: int
    not_before: datetime
