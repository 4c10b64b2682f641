"""The read-only admin of a row: lists that stay fast, pages that stay small, nothing to add, change or delete."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.contrib.admin.views.main import ERROR_FLAG
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied
from django.db.models import DateTimeField, Field, ForeignKey, Model, Q, QuerySet, TextField
from django.db.models.functions import Cast
from django.forms import Media
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.http import content_disposition_header

from turnkit_django.admin import display
from turnkit_django.admin.display import Value
from turnkit_django.admin.finding import by_id, by_subject
from turnkit_django.admin.pages import NewestPaginator
from turnkit_django.core.display import harmless
from turnkit_django.store import connections

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin  # the class takes no arguments at run time

STYLE = Media(css={"all": ["turnkit_django/admin.css"]})
Shown = list[tuple[str, object]]
"""Rows of a table of facts: what it is, and its value as text, HTML or a `Value`."""


class RowAdmin(_ModelAdmin):
    """Shows the rows of one model.

    Attributes:
        big: Columns whose values may be long: never read for a list, cut for a page, downloaded whole.
        ids: Columns that a search for an id looks at, by the prefix of the ids they hold.
        search_advice: What a search may ask for, in a sentence.
        subject_path: Where the columns of the subject are, if a search may ask for it.
    """

    big: ClassVar[tuple[str, ...]] = ()
    ids: ClassVar[dict[str, tuple[str, ...]]] = {}
    search_advice: ClassVar[str] = ""
    subject_path: ClassVar[str | None] = None
    page_template = "turnkit_django/admin/row.html"

    ordering = ("-pk",)
    sortable_by = ()
    search_fields = ("pk",)  # shows the field; `get_search_results` does the search
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # facets count every value in the whole table
    paginator = NewestPaginator
    change_list_template = "turnkit_django/admin/list.html"

    @property
    def media(self) -> Media:
        return super().media + STYLE

    # Nothing is written here

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        self.require_view(request)
        return self._refusal(request)

    def _refusal(self, request: HttpRequest) -> HttpResponse:
        context = self.context(request, title=f"Deleting {self.opts.verbose_name_plural} is refused")
        return TemplateResponse(request, "turnkit_django/admin/refusal.html", context, status=403)

    def require_view(self, request: HttpRequest) -> None:
        if not self.has_view_permission(request):
            raise PermissionDenied

    # The list

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any, Any]:
        return super().get_queryset(request).using(connections.alias()).defer(*self.big)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any, Any], search_term: str
    ) -> tuple[QuerySet[Any, Any], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        wanted = self._wanted(term)
        return (queryset.none() if wanted is None else queryset.filter(wanted)), False

    def _wanted(self, term: str) -> Q | None:
        found = by_id(term, self.ids)
        if found is None and self.subject_path is not None:
            return by_subject(term, self.subject_path)
        return found

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only by the filters: a lookup of any column could read the whole table, or be one PostgreSQL refuses."""
        return lookup in {getattr(each, "parameter_name", "") for each in self.list_filter}

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require_view(request)
        if any("\0" in value for values in request.GET.lists() for value in values[1]):
            return HttpResponseRedirect(f"{request.path}?{ERROR_FLAG}=1")
        asked = set(request.POST.getlist("action"))
        if "delete_selected" in asked:
            return self._refusal(request)
        if asked & set(self.actions or ()) - set(self.get_actions(request)):
            raise PermissionDenied
        return super().changelist_view(request, {**(extra_context or {}), "search_advice": self.search_advice})

    # The page of a row

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_value"
        view = self.admin_site.admin_view(self.value_view)
        return [path("<str:object_id>/value/<str:column>/", view, name=name), *super().get_urls()]

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        return None if "\0" in object_id else super().get_object(request, object_id, from_field)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        self.require_view(request)
        if request.method not in {"GET", "HEAD"}:
            raise PermissionDenied
        key = unquote(object_id)
        row = None if "\0" in key else self._whole_page(request).filter(pk=key).first()
        if row is None:
            return self._absent(request, key)
        title = f"{str(self.opts.verbose_name).capitalize()} {row.pk}"
        context = self.context(request, title=title, original=row, columns=self.columns(row))
        try:
            context |= self.page(request, row)
        except ObjectDoesNotExist:  # erased since it was read
            return self._absent(request, key)
        return TemplateResponse(request, self.page_template, context)

    def _absent(self, request: HttpRequest, key: str) -> HttpResponse:
        text = f"There is no {self.opts.verbose_name} {harmless(key, limit=display.SHORT)}. Perhaps it was erased."
        self.message_user(request, text, messages.WARNING)
        return HttpResponseRedirect(self._url(f"{self.opts.model_name}_changelist"))

    def _whole_page(self, request: HttpRequest) -> QuerySet[Any, Any]:
        rows = self.get_queryset(request)
        for column in self.big:
            rows = rows.annotate(**display.cut(column, f"cut_{column}"))
        return rows

    def page(self, request: HttpRequest, row: Any) -> dict[str, object]:
        """What the page of a row shows above its columns."""
        return {}

    def columns(self, row: Any) -> Shown:
        """All that is stored, column by column."""
        return [(field.name.replace("_", " "), self._column(row, field)) for field in self.opts.fields]

    def _column(self, row: Any, field: Field[Any, Any]) -> object:
        if field.name in self.big:
            return self.value(row, field.name)
        value = getattr(row, field.attname)
        if isinstance(field, ForeignKey) and value is not None:
            return self.link(str(field.related_model._meta.model_name), value)
        if isinstance(field, DateTimeField) and value is not None:
            return display.moment(value)
        text = f"{value:f}" if isinstance(value, Decimal) else str(value)
        return "null" if value is None else display.short(text, limit=display.PREVIEW) if text else "empty"

    def value(self, row: Any, column: str) -> Value:
        return display.taken(vars(row), f"cut_{column}", url=self.value_url(row.pk, column))

    def value_url(self, key: str, column: str, *, kind: str = "") -> str:
        """Where a value can be had whole; empty on a site where its kind has no pages."""
        return self._url(f"{kind or self.opts.model_name}_value", key, column)

    def link(self, kind: str, key: str | None) -> str:
        """A link to the page of a row; its id alone on a site where its kind has no pages."""
        if not key:
            return display.NOTHING
        url = self._url(f"{kind}_change", quote(key))
        return format_html('<a href="{}">{}</a>', url, key) if url else key

    def list_links(self, key: str, *models: type[Model]) -> list[tuple[str, str]]:
        """Lists of what belongs to a row, by a search for its id: the name of the kind and the address."""
        urls = [(model._meta, self._url(f"{model._meta.model_name}_changelist")) for model in models]
        return [(str(kind.verbose_name_plural).capitalize(), f"{url}?q={key}") for kind, url in urls if url]

    def _url(self, name: str, *args: str) -> str:
        try:
            return reverse(f"admin:{self.opts.app_label}_{name}", args=args, current_app=self.admin_site.name)
        except NoReverseMatch:
            return ""

    def value_view(self, request: HttpRequest, object_id: str, column: str) -> HttpResponseBase:
        """One stored value, whole, as a file that no browser will run."""
        self.require_view(request)
        if column not in self.big or "\0" in object_id:
            raise Http404
        stored = self.get_queryset(request).filter(pk=object_id).values_list(Cast(column, TextField()), flat=True)
        if (text := stored.first()) is None:
            raise Http404
        return HttpResponse(
            text,
            content_type="text/plain; charset=utf-8",
            headers={
                "Content-Disposition": content_disposition_header(
                    as_attachment=True, filename=f"{object_id}-{column}.txt"
                ),
                "X-Content-Type-Options": "nosniff",
                "Content-Security-Policy": "default-src 'none'; sandbox",
            },
        )

    def context(self, request: HttpRequest, *, title: str, **more: object) -> dict[str, object]:
        request.current_app = self.admin_site.name
        return {
            **self.admin_site.each_context(request),
            "title": title,
            "opts": self.opts,
            "media": STYLE,
            "has_view_permission": True,
            "is_popup": False,
            **more,
        }
