import runpy
from pathlib import Path

from turnkit_django.core.states import TOOL_MOVES, TURN_MOVES

DOCS = Path(__file__).parents[2] / "docs"
GENERATOR = runpy.run_path(str(DOCS / "states_diagram.py"))


def test_the_diagrams_and_the_table_of_moves_are_those_of_the_code():
    page = (DOCS / "states.md").read_text()

    # Mend it with: python docs/states_diagram.py
    assert page == GENERATOR["written"](page, GENERATOR["generated"]())


def test_each_move_of_the_tables_is_made_and_drawn():
    parts = GENERATOR["generated"]()
    for name, moves in (("turn", TURN_MOVES), ("execution", TOOL_MOVES)):
        arrows = {line.split(":")[0].strip().replace("-->", "→") for line in parts[name].splitlines()}
        assert {f"{old} → {new}" for old, news in moves.items() for new in news} <= arrows


def test_every_state_has_a_row_that_says_what_it_means():
    page = (DOCS / "states.md").read_text()
    assert [state for state in [*TURN_MOVES, *TOOL_MOVES] if f"| `{state}` |" not in page] == []
