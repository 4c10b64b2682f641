"""Bounded pages of long tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

if TYPE_CHECKING:
    _Paginator = Paginator[Any]
    AnyPage = Page[Any]
else:
    _Paginator, AnyPage = Paginator, Page  # the classes take no arguments at run time

STEPS = 50
"""Rows on a page of a timeline."""
LISTED = 10_000
"""Most rows that a list counts and pages through: counting millions would read them all."""


class NewestPaginator(_Paginator):
    """Pages of the newest rows; older ones are found by a search or a filter."""

    @cached_property
    def _found(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by("-pk").values("pk")[: LISTED + 1].count())

    @property
    def count(self) -> int:
        return min(self._found, LISTED)

    @property
    def is_cut(self) -> bool:
        return self._found > LISTED

    @property
    def listed(self) -> str:
        return f"{LISTED:,}"


def page_of(rows: QuerySet[Any, Any], request: HttpRequest, name: str) -> AnyPage:
    """The page that the request asks for by the parameter `name`; the nearest one if there is none such."""
    return Paginator(rows, STEPS).get_page(request.GET.get(name))


def rows_on(page: AnyPage) -> QuerySet[Any, Any]:
    """The rows of a page, not read yet."""
    return cast("QuerySet[Any, Any]", page.object_list)
