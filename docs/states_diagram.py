"""Writes the generated parts of states.md out of the code: `python docs/states_diagram.py`."""

import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path

Moves = Mapping[str, frozenset[str]]
Labels = dict[tuple[str, str], list[str]]

PAGE = Path(__file__).with_name("states.md")

# The decorator of a move in store/moves.py says who makes it.
_MOVERS = {
    "transition": "the application",
    "maintenance": "maintenance",
    "claiming": "a worker that takes it",
    "worker_move": "the worker that holds it",
    "statement": "the worker that holds it",
}


def generated() -> dict[str, str]:
    """The generated parts by name. Needs `django.setup()`."""
    from turnkit_django.core.states import TOOL_MOVES, TURN_MOVES
    from turnkit_django.store import transitions  # noqa: F401  fills TRANSITIONS
    from turnkit_django.store.moves import TRANSITIONS

    moves = {name: _parsed(move.__doc__ or "") for name, move in TRANSITIONS.items()}
    makers = {name: _mover(move) for name, move in TRANSITIONS.items()}
    table = ["| move | by | from | to | what it does |", "| --- | --- | --- | --- | --- |"]
    table += [f"| `{name}` | {makers[name]} | {old} | {new} | {what} |" for name, (old, new, what) in moves.items()]
    labels = _labels(moves)
    made = {old: frozenset(new for new in news if (old, new) in labels) for old, news in TURN_MOVES.items()}
    return {
        "turn": _diagram(_reachable(made, labels), labels),
        "execution": _diagram(TOOL_MOVES, {}),
        "moves": "\n".join(table),
    }


def _parsed(docstring: str) -> tuple[str, str, str]:
    """The states and the sentences of `FROM → TO. What it does.`; a new row may have no state before or after."""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    states, _, what = paragraph.partition(". ")
    old, _, new = (part.strip() for part in states.partition("→"))
    return old.lower(), new.lower() or "—", what.replace("|", r"\|")


def _mover(move: Callable[..., object]) -> str:
    # A renewal runs as maintenance does, but for the claims that it is given.
    is_of_holder = "claims" in inspect.signature(move).parameters
    return _MOVERS["worker_move" if is_of_holder else move.__code__.co_qualname.partition(".")[0]]


def _labels(moves: Mapping[str, tuple[str, str, str]]) -> Labels:
    labels: Labels = {}
    for name, (olds, news, _) in moves.items():
        for old in re.findall(r"[a-z]+|\(new\)", olds):
            for new in re.findall(r"[a-z]+", news):
                labels.setdefault((old, new), []).append(name)
    return labels


def _reachable(moves: Moves, labels: Labels) -> dict[str, frozenset[str]]:
    """`moves` without the states that no row can come to."""
    found = {new for old, new in labels if old == "(new)"}
    while more := {new for old in found for new in moves.get(old, ())} - found:
        found |= more
    return {old: news for old, news in moves.items() if old in found}


def _diagram(moves: Moves, labels: Labels) -> str:
    states = list(moves)
    arrows = [("(new)", state) for state in states if ("(new)", state) in labels] or [("(new)", states[0])]
    arrows += [(old, new) for old in states for new in sorted(moves[old], key=states.index)]
    lines = ["```mermaid", "stateDiagram-v2"]
    for old, new in arrows:
        names = ", ".join(labels.get((old, new), []))
        lines.append(f"    {old.replace('(new)', '[*]')} --> {new}" + (f": {names}" if names else ""))
    lines += [f"    {state} --> [*]" for state in states if not moves[state]]
    return "\n".join([*lines, "```"])


def written(page: str, parts: Mapping[str, str]) -> str:
    """`page` with the text between each pair of markers made anew."""
    for name, text in parts.items():
        pattern = rf"(<!-- generated: {name} -->).*?(<!-- end of {name} -->)"
        page = re.sub(pattern, lambda found, text=text: f"{found[1]}\n\n{text}\n\n{found[2]}", page, flags=re.DOTALL)
    return page


if __name__ == "__main__":
    import conf  # noqa: F401  sets Django up, as for the site

    PAGE.write_text(written(PAGE.read_text(), generated()))
