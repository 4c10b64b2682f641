"""Turns: the list, the page with its timeline, and cancelling."""

from __future__ import annotations

import re
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.fields.json import KeyTextTransform
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from turnkit_django.admin import actions, display, timeline, tree
from turnkit_django.admin.base import RowAdmin, Shown
from turnkit_django.admin.finding import AgeFilter, AgentFilter, KnownValues
from turnkit_django.admin.pages import page_of, rows_on
from turnkit_django.core.states import OPEN
from turnkit_django.models import Delivery, Message, ToolExecution, Turn, Wait

_LISTED_TO_CONFIRM = 20
_ID = re.compile(r"(?<![^,])\w+(?![^,])", re.ASCII)  # between commas


class StatusFilter(KnownValues):
    title = "status"
    parameter_name = "status"
    column = "status"
    values = Turn.Status.choices


class TurnAdmin(RowAdmin):
    big = ("context", "principal", "options", "candidate", "output_text", "error", "callback_error")
    ids = {"turn": ("pk",), "conv": ("conversation_id",)}
    subject_path = "conversation__"
    search_advice = (
        "The id of a turn or a conversation or its beginning (turn_06A…), or a subject (helpdesk.customer:7)."
    )
    page_template = "turnkit_django/admin/turn.html"
    list_display = ["id", "state", "agent", "made", "calls", "tokens", "price", "lost", "model_name", "of_conversation"]
    list_filter = [StatusFilter, AgentFilter, AgeFilter]
    actions = ["cancel_selected"]

    # The list

    @admin.display(description="status")
    def state(self, turn: Turn) -> str:
        return display.status(turn.status)

    @admin.display(description="agent")
    def agent(self, turn: Turn) -> str:
        return display.short(turn.agent_name)

    @admin.display(description="model")
    def model_name(self, turn: Turn) -> str:
        return display.short(turn.model)

    @admin.display(description="conversation")
    def of_conversation(self, turn: Turn) -> str:
        return self.link("conversation", turn.conversation_id)

    @admin.display(description="made")
    def made(self, turn: Turn) -> str:
        return display.age(turn.created_at)

    @admin.display(description="model calls")
    def calls(self, turn: Turn) -> str:
        return f"{turn.iterations} of {turn.max_iterations}"

    @admin.display(description="tokens")
    def tokens(self, turn: Turn) -> str:
        return display.tokens(turn.usage.total_tokens)

    @admin.display(description="cost")
    def price(self, turn: Turn) -> str:
        return display.money(turn.cost)

    @admin.display(description="lost workers")
    def lost(self, turn: Turn) -> int:
        return turn.attempts

    # The page

    def _whole_page(self, request: HttpRequest) -> QuerySet[Any, Any]:
        rows = super()._whole_page(request)
        for part in ("type", "message", "details"):
            rows = rows.annotate(**display.cut(KeyTextTransform(part, "error"), f"why_{part}"))
        return rows

    def page(self, request: HttpRequest, row: Turn) -> dict[str, object]:
        steps = page_of(row.messages.order_by("sequence"), request, "p")
        shown = timeline.message_steps(timeline.message_rows(rows_on(steps)), self)
        if not steps.has_next():
            left = row.tool_executions.filter(result_messages__isnull=True).order_by("ordinal")
            shown += timeline.call_steps(timeline.call_rows(left)[: steps.paginator.per_page], self)
        branches, is_cut = tree.branches(self.get_queryset(request), row, self)
        return {
            "branches": branches,
            "is_tree_cut": is_cut,
            "lists": self.list_links(row.pk, Message, ToolExecution, Delivery, Wait),
            "facts": self._facts(row),
            "explanation": row.explain(),
            "errors": timeline.error_values(vars(row), "why", url=self.value_url(row.pk, "error")),
            "steps": shown,
            "steps_page": steps,
            "page_range": steps.paginator.get_elided_page_range(steps.number, on_each_side=2, on_ends=1),
            "attempt_started": display.moment(row.attempt_started_at) if row.attempt_id else "",
            "can_cancel": not row.is_terminal and self.has_cancel_permission(request),
        }

    def _facts(self, turn: Turn) -> Shown:
        usage = turn.usage
        unheard = f" and {turn.unknown_attempts} calls never heard of again" if turn.unknown_attempts else ""
        claim = (
            f"{display.short(turn.claimed_by)}, lease ends {display.age(turn.lease_expires_at)}"
            if (turn.lease_expires_at)
            else "nobody"
        )
        return [
            ("Status", display.status(turn.status)),
            ("Agent", display.short(turn.agent_name)),
            ("Version of the agent", display.short(turn.agent_version)),
            ("Model", display.short(turn.model)),
            ("Conversation", self.link("conversation", turn.conversation_id)),
            ("Called by", self.link("turn", turn.parent_id)),
            ("Tries again", self.link("turn", turn.retry_of_id)),
            ("Made", display.moment(turn.created_at)),
            ("Submitted", display.moment(turn.submitted_at)),
            ("Started", display.moment(turn.started_at)),
            ("Ended", display.moment(turn.completed_at)),
            ("Held by", claim),
            ("Held since", display.moment(turn.claimed_at)),
            ("Cost", display.money(turn.cost)),
            (
                "Tokens",
                f"{display.tokens(usage.total_tokens)} ({usage.input_tokens:,} in, {usage.output_tokens:,} out, "
                f"{usage.cached_tokens:,} cached, {usage.cache_write_tokens:,} written to the cache, "
                f"{usage.thinking_tokens:,} thinking){unheard}",
            ),
            ("Model calls", f"{turn.iterations} of {turn.max_iterations}, {turn.model_failures} failed in a row"),
            ("Workers lost", f"{turn.attempts}"),
        ]

    # Cancelling

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and request.user.has_perm("turnkit.cancel_turn")

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.cancel_view)
        return [path("cancel/", view, name="turnkit_turn_cancel"), *super().get_urls()]

    @admin.action(permissions=["cancel"], description="Cancel selected turns")
    def cancel_selected(self, request: HttpRequest, queryset: QuerySet[Any, Any]) -> HttpResponse | None:
        ids = list(queryset.order_by("-pk").values_list("pk", flat=True)[: actions.MOST + 1])
        if len(ids) > actions.MOST:
            self._refuse_as_too_many(request)
            return None
        return self._confirmation(request, ids)

    @transaction.non_atomic_requests
    def cancel_view(self, request: HttpRequest) -> HttpResponse:
        """GET asks, POST cancels. `turns` holds ids, separated by commas."""
        if not self.has_cancel_permission(request):
            raise PermissionDenied
        asked = request.POST if request.method == "POST" else request.GET
        ids = list(dict.fromkeys(_ID.findall(asked.get("turns", ""))))
        if len(ids) > actions.MOST:
            self._refuse_as_too_many(request)
        elif request.method != "POST":
            return self._confirmation(request, ids)
        else:
            self._cancel(request, ids)
        return HttpResponseRedirect(self._place_after(ids))

    def _cancel(self, request: HttpRequest, ids: list[str]) -> None:
        # A site may show its people some turns only: the others do not exist for them.
        seen = set(self.get_queryset(request).filter(pk__in=ids).values_list("pk", flat=True))
        allowed = [each for each in ids if each in seen]
        note = "Cancelled in the admin."
        counts = actions.cancel_turns(allowed, note=lambda turn: self.log_change(request, turn, note))
        counts[actions.Outcome.GONE] += len(ids) - len(allowed)
        is_done = 0 < len(ids) == counts[actions.Outcome.CANCELLED]
        level = messages.SUCCESS if is_done else messages.WARNING
        self.message_user(request, f"{actions.said(counts)}.", level)

    def _refuse_as_too_many(self, request: HttpRequest) -> None:
        text = f"Nothing was cancelled: at most {actions.MOST:,} turns at a time. Select fewer, or filter first."
        self.message_user(request, text, messages.ERROR)

    def _place_after(self, ids: list[str]) -> str:
        name, args = ("change", ids) if len(ids) == 1 else ("changelist", [])
        return reverse(f"admin:turnkit_turn_{name}", args=args, current_app=self.admin_site.name)

    def _confirmation(self, request: HttpRequest, ids: list[str]) -> HttpResponse:
        turns = self.get_queryset(request).filter(pk__in=ids)
        open_count = turns.filter(status__in=OPEN).count()
        context = self.context(
            request,
            title="Cancel this turn?" if len(ids) == 1 else f"Cancel {len(ids):,} turns?",
            turns=[
                (self.link("turn", each.pk), display.status(each.status), display.short(each.agent_name))
                for each in turns.order_by("-pk")[:_LISTED_TO_CONFIRM]
            ],
            more=max(len(ids) - _LISTED_TO_CONFIRM, 0),
            ended_count=len(ids) - open_count,
            open_count=open_count,
            ids=",".join(ids),
            cancel_url=reverse("admin:turnkit_turn_cancel", current_app=self.admin_site.name),
            back_url=self._place_after(ids),
        )
        return TemplateResponse(request, "turnkit_django/admin/cancel.html", context)
