"""Every state and every legal move, as tables. Choices, constraints, tests and diagrams come from here."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from turnkit_django.errors import IllegalMove


class TurnState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    STALE = "stale"


class ToolState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class Phase(StrEnum):
    """Where a turn stands between two commits."""

    MODEL = "model"
    TOOLS = "tools"
    OUTPUT = "output"


class Approval(StrEnum):
    NONE = ""
    REQUIRED = "required"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"


_T = TurnState
TURN_MOVES: Mapping[TurnState, frozenset[TurnState]] = {
    _T.PENDING: frozenset({_T.RUNNING, _T.WAITING, _T.PAUSED, _T.FAILED, _T.CANCELLED}),
    _T.WAITING: frozenset({_T.PENDING, _T.PAUSED, _T.FAILED, _T.CANCELLED}),
    _T.PAUSED: frozenset({_T.PENDING, _T.WAITING, _T.FAILED, _T.CANCELLED}),
    _T.RUNNING: frozenset({_T.PENDING, _T.WAITING, _T.PAUSED, _T.COMPLETED, _T.FAILED, _T.CANCELLED, _T.STALE}),
    _T.COMPLETED: frozenset(),
    _T.FAILED: frozenset(),
    _T.CANCELLED: frozenset(),
    _T.STALE: frozenset(),
}

_X = ToolState
TOOL_MOVES: Mapping[ToolState, frozenset[ToolState]] = {
    _X.PENDING: frozenset({_X.RUNNING, _X.COMPLETED, _X.FAILED, _X.CANCELLED, _X.INTERRUPTED}),
    _X.RUNNING: frozenset({_X.PENDING, _X.COMPLETED, _X.FAILED, _X.INTERRUPTED}),
    _X.COMPLETED: frozenset(),
    _X.FAILED: frozenset(),
    _X.CANCELLED: frozenset(),
    _X.INTERRUPTED: frozenset(),
}

TERMINAL = frozenset(state for state, moves in TURN_MOVES.items() if not moves)
"""States of a turn with no way out."""
OPEN = frozenset(TURN_MOVES) - TERMINAL
SETTLED = frozenset(state for state, moves in TOOL_MOVES.items() if not moves)
"""States of a tool execution with no way out."""


def check_move(old: str, new: str) -> None:
    """Refuse a move of a turn that `TURN_MOVES` does not list.

    Raises:
        IllegalMove: Names both states and what was allowed.
    """
    allowed = TURN_MOVES[TurnState(old)]
    if TurnState(new) not in allowed:
        names = ", ".join(sorted(allowed)) or "nothing: the state is final"
        raise IllegalMove(f"a turn cannot move from `{old}` to `{new}`; allowed: {names}")
