"""The tree that a turn belongs to: which agent called which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db.models import QuerySet

from turnkit_django.admin import display
from turnkit_django.models import Turn

if TYPE_CHECKING:
    from turnkit_django.admin.base import RowAdmin

_MOST = 100  # a page that shows more tells nobody more


@dataclass(frozen=True, slots=True)
class Branch:
    """A turn of the tree as the page shows it.

    Attributes:
        depth: How far it stands to the right.
        is_here: Whether it is the turn whose page this is.
    """

    depth: int
    link: str
    status: str
    agent: str
    is_here: bool


def branches(turns: QuerySet[Turn], turn: Turn, admin: RowAdmin) -> tuple[list[Branch], bool]:
    """The tree of a turn, callers before those they called, and whether it was cut; empty for a turn that is alone.

    Args:
        turns: Those that the person may see.
    """
    rows = turns.filter(root=turn.root_id).order_by("created_at", "pk")
    found = list(rows.values("pk", "parent_id", "status", "agent_name")[: _MOST + 1]) if turn.root_id else []
    if len(found) < 2:
        return [], False
    shown = found[:_MOST]
    below: dict[str | None, list[Mapping[str, Any]]] = {}
    known = {row["pk"] for row in shown}
    for row in shown:  # whose caller was erased, or may not be seen, stands at the left
        below.setdefault(row["parent_id"] if row["parent_id"] in known else None, []).append(row)
    return [_branch(row, depth, turn, admin) for row, depth in _walk(below, None, 0)], len(found) > _MOST


def _walk(
    below: Mapping[str | None, Sequence[Mapping[str, Any]]], parent: str | None, depth: int
) -> Iterator[tuple[Mapping[str, Any], int]]:
    for row in below.get(parent, ()):
        yield row, depth
        yield from _walk(below, row["pk"], depth + 1)


def _branch(row: Mapping[str, Any], depth: int, turn: Turn, admin: RowAdmin) -> Branch:
    return Branch(
        depth=depth,
        link=admin.link("turn", row["pk"]),
        status=display.status(row["status"]),
        agent=display.short(row["agent_name"]),
        is_here=row["pk"] == turn.pk,
    )
