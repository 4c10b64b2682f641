"""The tables of `docs/events.md`, made from the docstrings of `core/events/`.

`python -m tests.docs.event_tables` writes them into the page.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

from turnkit_django.core.events import CATALOGUE, FAMILIES, Event

PAGE = Path(__file__).parents[2] / "docs/events.md"
START, END = "<!-- made from core/events/: {} -->", "<!-- end -->"


def tables() -> dict[str, str]:
    """The table of each family, by the name of its class; the one of `Event` holds what all carry."""
    common = "\n".join(
        ["| field | meaning |", "| --- | --- |", *(f"| `{k}` | {v} |" for k, v in meanings(Event).items())]
    )
    return {"Event": common} | {family.__name__: _table(family) for family in FAMILIES}


def _table(family: type[Event]) -> str:
    rows = [_row(kind) for kind in CATALOGUE.values() if issubclass(kind, family)]
    return "\n".join(["| event | sent when | carries |", "| --- | --- | --- |", *rows])


def _row(kind: type[Event]) -> str:
    known = meanings(kind)
    own = [item.name for item in fields(kind) if item.name not in meanings(Event)]
    return f"| `{kind.type}` | {summary(kind)} | {'<br>'.join(f'`{name}`: {known[name]}' for name in own)} |"


def summary(kind: type) -> str:
    return " ".join(inspect.cleandoc(kind.__doc__ or "").partition("\n\nAttributes:")[0].split())


def meanings(kind: type) -> dict[str, str]:
    """What each field means, as the docstrings of the class and of those above it say."""
    found: dict[str, str] = {}
    for part in reversed(kind.__mro__):
        _, _, attributes = inspect.cleandoc(part.__doc__ or "").partition("\n\nAttributes:\n")
        for name, text in re.findall(r"^    (\w+): (.+(?:\n     .+)*)", attributes, re.MULTILINE):
            found[name] = " ".join(text.split())
    return found


def filled(page: str) -> str:
    """The page with its tables as they should be."""
    for name, table in tables().items():
        start = re.escape(START.format(name))
        page = re.sub(rf"({start}\n\n).*?(\n\n{END})", lambda found, t=table: found[1] + t + found[2], page, flags=re.S)
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
