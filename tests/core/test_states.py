import pytest

from turnkit_django.core.states import (
    OPEN,
    SETTLED,
    TERMINAL,
    TOOL_MOVES,
    TURN_MOVES,
    ToolState,
    TurnState,
    check_move,
)
from turnkit_django.errors import IllegalMove

MOVES = [(old, new) for old in TurnState for new in TurnState]


@pytest.mark.parametrize(("old", "new"), MOVES)
def test_a_move_is_legal_if_and_only_if_the_table_lists_it(old: TurnState, new: TurnState):
    if new in TURN_MOVES[old]:
        check_move(old.value, new.value)
        return
    with pytest.raises(IllegalMove, match=f"a turn cannot move from `{old}` to `{new}`; allowed: "):
        check_move(old.value, new.value)


def test_the_error_says_what_was_allowed():
    with pytest.raises(IllegalMove, match=r"allowed: cancelled, failed, paused, pending$"):
        check_move("waiting", "running")
    with pytest.raises(IllegalMove, match=r"allowed: nothing: the state is final$"):
        check_move("failed", "pending")


@pytest.mark.parametrize(("old", "new"), [("asleep", "running"), ("pending", "asleep")])
def test_an_unknown_state_is_no_state(old: str, new: str):
    with pytest.raises(ValueError, match="'asleep' is not a valid TurnState"):
        check_move(old, new)


def test_terminal_means_completed_failed_cancelled_or_stale():
    assert {state.value for state in TERMINAL} == {"completed", "failed", "cancelled", "stale"}
    assert {state.value for state in OPEN} == {"pending", "running", "waiting", "paused"}


def test_only_a_running_turn_completes_or_goes_stale():
    ways = {end: {old.value for old, new in TURN_MOVES.items() if end in new} for end in TERMINAL}

    assert ways[TurnState.COMPLETED] == ways[TurnState.STALE] == {"running"}
    assert ways[TurnState.CANCELLED] == ways[TurnState.FAILED] == {"pending", "running", "waiting", "paused"}


def test_a_settled_execution_stays_as_it_is():
    assert {state.value for state in SETTLED} == {"completed", "failed", "cancelled", "interrupted"}
    assert set(TOOL_MOVES) == set(ToolState)
    assert ToolState.CANCELLED not in TOOL_MOVES[ToolState.RUNNING]
