"""What all rows share: prefixed text ids, named checks, and JSON defaults."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from django.db import models

from turnkit_django.core.ids import MAX_LENGTH

if TYPE_CHECKING:
    _TextKey = models.CharField[str, str]
else:
    _TextKey = models.CharField  # the class takes no arguments at run time


class IdField(_TextKey):
    """A prefixed id (`turn_…`) as primary key.

    Spelled out as `character varying`, because Django gives `varchar` keys, and every foreign key to them, a second
    index for LIKE queries that nobody asks here: it would double what each insert writes.
    """

    def __init__(self, **options: Any) -> None:
        options.setdefault("max_length", MAX_LENGTH)
        options.setdefault("primary_key", True)
        options.setdefault("editable", False)
        super().__init__(**options)

    def db_type(self, connection: Any) -> str:
        return f"character varying({self.max_length})"

    def cast_db_type(self, connection: Any) -> str:
        return self.db_type(connection)


def one_of(field: str, states: type[StrEnum]) -> models.Q:
    """The condition that `field` holds a known state."""
    return models.Q(**{f"{field}__in": [state.value for state in states]})


def together(*fields: str) -> models.Q:
    """The condition that all fields are null or none is."""
    return models.Q(**{f"{field}__isnull": True for field in fields}) | models.Q(
        **{f"{field}__isnull": False for field in fields}
    )


def never_negative(*fields: str) -> models.Q:
    return models.Q(**{f"{field}__gte": 0 for field in fields})


def choices(states: Iterable[StrEnum]) -> list[tuple[str, str]]:
    return [(state.value, state.value.replace("_", " ")) for state in states]


def values(states: Iterable[StrEnum]) -> list[str]:
    """Plain, sorted texts: what a migration can spell out."""
    return sorted(state.value for state in states)
