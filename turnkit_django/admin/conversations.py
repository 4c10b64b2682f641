"""Conversations: the list, and the page with its messages, turns and totals."""

from __future__ import annotations

from decimal import Decimal

from django.contrib import admin
from django.db.models import Count, Q, Sum
from django.http import HttpRequest

from turnkit_django.admin import display, timeline
from turnkit_django.admin.base import RowAdmin
from turnkit_django.admin.base import Shown as Facts
from turnkit_django.admin.finding import AgeFilter, AgentFilter
from turnkit_django.admin.pages import page_of, rows_on
from turnkit_django.admin.turns import TurnAdmin
from turnkit_django.models import Conversation, Delivery, Message, ToolExecution, Turn

_TOKENS = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "thinking_tokens")


class ConversationAdmin(RowAdmin):
    big = ("metadata", "context", "principal")
    ids = {"conv": ("pk",)}
    subject_path = ""
    search_advice = "The id of a conversation or its beginning (conv_06A…), or a subject (helpdesk.customer:7)."
    page_template = "turnkit_django/admin/conversation.html"
    list_display = ["id", "agent", "model_name", "subject", "message_count", "made"]
    list_filter = [AgentFilter, AgeFilter]

    @admin.display(description="agent")
    def agent(self, conversation: Conversation) -> str:
        return display.short(conversation.agent_name)

    @admin.display(description="model")
    def model_name(self, conversation: Conversation) -> str:
        return display.short(conversation.model)

    @admin.display(description="subject")
    def subject(self, conversation: Conversation) -> str:
        if not conversation.subject_type:
            return display.NOTHING
        return display.short(f"{conversation.subject_type}:{conversation.subject_id}")

    @admin.display(description="messages")
    def message_count(self, conversation: Conversation) -> int:
        return conversation.next_sequence - 1

    @admin.display(description="made")
    def made(self, conversation: Conversation) -> str:
        return display.age(conversation.created_at)

    def page(self, request: HttpRequest, row: Conversation) -> dict[str, object]:
        steps = page_of(row.messages.order_by("sequence"), request, "p")
        turns = page_of(row.turns.defer(*TurnAdmin.big).order_by("-pk"), request, "t")
        return {
            "lists": self.list_links(row.pk, Turn, Message, ToolExecution, Delivery),
            "facts": self._facts(row),
            "turns": [
                (
                    self.link("turn", turn.pk),
                    display.status(turn.status),
                    display.age(turn.created_at),
                    display.tokens(turn.usage.total_tokens),
                    display.money(turn.cost),
                )
                for turn in turns
            ],
            "turns_page": turns,
            "turns_range": turns.paginator.get_elided_page_range(turns.number, on_each_side=2, on_ends=1),
            "steps": timeline.message_steps(timeline.message_rows(rows_on(steps)), self),
            "steps_page": steps,
            "page_range": steps.paginator.get_elided_page_range(steps.number, on_each_side=2, on_ends=1),
        }

    def _facts(self, conversation: Conversation) -> Facts:
        sums = conversation.turns.aggregate(
            **{name: Sum(name, default=0) for name in _TOKENS},
            known=Sum("cost", default=Decimal(0)),
            unknown=Count("pk", filter=Q(cost__isnull=True)),
        )
        cost = display.money(sums["known"])
        if sums["unknown"]:
            cost += f" known; that of {sums['unknown']:,} of its turns is unknown"
        return [
            ("Agent", self.agent(conversation)),
            ("Subject", self.subject(conversation)),
            ("Made", display.moment(conversation.created_at)),
            ("Tokens", display.tokens(sum(sums[name] for name in _TOKENS))),
            ("Cost", cost),
        ]
