"""Search and filters that an index serves, or a short list of known values: never a scan for a piece of text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from django.contrib.admin import ModelAdmin, SimpleListFilter
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from turnkit_django.agents import registered
from turnkit_django.core.ids import earliest_id, id_range

_ID = re.compile(r"(conv|turn|msg|tool|dlv|wait)_([0-9a-z]{0,26})", re.IGNORECASE)
_SUBJECT = re.compile(r"(\w+\.\w+):(.+)")


def by_id(term: str, columns: dict[str, tuple[str, ...]]) -> Q | None:
    """Rows by an id or its beginning, in the columns that hold ids of its kind; None: it is no such id.

    Args:
        columns: Names of columns by the prefix of the ids they hold.
    """
    if not (found := _ID.fullmatch(term)) or (prefix := found[1].lower()) not in columns:
        return None
    low, high = id_range(f"{prefix}_{found[2].upper()}")
    wanted = Q()
    for column in columns[prefix]:
        wanted |= Q(**{f"{column}__gte": low, f"{column}__lte": high})
    return wanted


def by_subject(term: str, path: str) -> Q | None:
    """Rows by what their conversation is about, written `app_label.model:key`."""
    if not (found := _SUBJECT.fullmatch(term)):
        return None
    return Q(**{f"{path}subject_type": found[1].lower(), f"{path}subject_id": found[2]})


class KnownValues(SimpleListFilter):
    """A filter on a column by values that are known without reading it."""

    column: str
    values: Sequence[tuple[str, str]] = ()

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Sequence[tuple[str, str]]:
        return self.values

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any, Any]) -> QuerySet[Any, Any]:
        value = self.value()
        if value is None:
            return queryset
        if value not in {str(known) for known, _ in self.lookup_choices}:
            raise IncorrectLookupParameters(f"{self.parameter_name}={value}")
        return self.chosen(queryset, value)

    def chosen(self, queryset: QuerySet[Any, Any], value: str) -> QuerySet[Any, Any]:
        return queryset.filter(**{self.column: value})


class AgentFilter(KnownValues):
    title = "agent"
    parameter_name = "agent"
    column = "agent_name"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [(name, name) for name in sorted(registered())]


class ToolFilter(KnownValues):
    title = "tool"
    parameter_name = "tool"
    column = "tool_name"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [(name, name) for name in sorted(set(_tool_names()))]


def _tool_names() -> Iterator[str]:
    for agent in registered().values():
        yield from (spec.name for spec in agent.tool_specs())


class AgeFilter(KnownValues):
    """By the time that is part of every id, so that the primary key serves it."""

    title = "age"
    parameter_name = "age"
    values = (("1", "Past hour"), ("24", "Past day"), ("168", "Past 7 days"), ("720", "Past 30 days"))

    def chosen(self, queryset: QuerySet[Any, Any], value: str) -> QuerySet[Any, Any]:
        prefix = queryset.model._meta.pk.get_default().partition("_")[0]
        return queryset.filter(pk__gte=earliest_id(prefix, timezone.now() - timedelta(hours=int(value))))
