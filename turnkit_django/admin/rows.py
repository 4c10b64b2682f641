"""Messages, tool executions, deliveries and waits: lists and plain pages."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest

from turnkit_django.admin import display
from turnkit_django.admin.base import RowAdmin
from turnkit_django.admin.finding import AgeFilter, KnownValues, ToolFilter
from turnkit_django.models import Delivery, Message, ToolExecution, Wait
from turnkit_django.models.message import Role


class RoleFilter(KnownValues):
    title = "role"
    parameter_name = "role"
    column = "role"
    values = [(role.value, role.value) for role in Role]


class StatusFilter(KnownValues):
    title = "status"
    parameter_name = "status"
    column = "status"
    values = ToolExecution.Status.choices


class DeliveredFilter(KnownValues):
    title = "delivered"
    parameter_name = "delivered"
    values = (("no", "Not yet"), ("yes", "Delivered"))

    def chosen(self, queryset: QuerySet[Any, Any], value: str) -> QuerySet[Any, Any]:
        return queryset.filter(delivered_at__isnull=value == "no")


class TargetFilter(KnownValues):
    title = "target"
    parameter_name = "target"
    values = (("open", "Still open"), ("ended", "Ended"))

    def chosen(self, queryset: QuerySet[Any, Any], value: str) -> QuerySet[Any, Any]:
        return queryset.filter(target__completed_at__isnull=value == "open")


class MessageAdmin(RowAdmin):
    big = ("content", "metadata")
    ids = {"msg": ("pk",), "conv": ("conversation_id",), "turn": ("turn_id",), "tool": ("tool_execution_id",)}
    search_advice = "The id of a message, a conversation, a turn or a tool execution, or its beginning."
    list_display = ["id", "of_conversation", "sequence", "role", "kind", "of_turn", "made"]
    list_filter = [RoleFilter, AgeFilter]

    @admin.display(description="conversation")
    def of_conversation(self, message: Message) -> str:
        return self.link("conversation", message.conversation_id)

    @admin.display(description="turn")
    def of_turn(self, message: Message) -> str:
        return self.link("turn", message.turn_id)

    @admin.display(description="made")
    def made(self, message: Message) -> str:
        return display.age(message.created_at)


class ToolExecutionAdmin(RowAdmin):
    big = (
        "tool_name", "tool_call_id", "arguments_text", "arguments", "result", "error", "approval_by", "approval_note",
        "settled_by",
    )  # fmt: skip
    ids = {"tool": ("pk",), "turn": ("turn_id",), "conv": ("turn__conversation_id",)}
    search_advice = "The id of a tool execution, a turn or a conversation, or its beginning."
    list_display = ["id", "tool", "state", "of_turn", "ordinal", "made", "took"]
    list_filter = [StatusFilter, ToolFilter, AgeFilter]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any, Any]:
        rows: QuerySet[Any, Any] = super().get_queryset(request).annotate(named=Left("tool_name", display.SHORT))
        return rows

    @admin.display(description="tool")
    def tool(self, execution: ToolExecution) -> str:
        return display.short(vars(execution)["named"])

    @admin.display(description="status")
    def state(self, execution: ToolExecution) -> str:
        return display.status(execution.status)

    @admin.display(description="turn")
    def of_turn(self, execution: ToolExecution) -> str:
        return self.link("turn", execution.turn_id)

    @admin.display(description="made")
    def made(self, execution: ToolExecution) -> str:
        return display.age(execution.created_at)

    @admin.display(description="took")
    def took(self, execution: ToolExecution) -> str:
        if execution.started_at is None or execution.completed_at is None:
            return display.NOTHING
        return display.seconds((execution.completed_at - execution.started_at).total_seconds())


class DeliveryAdmin(RowAdmin):
    big = ("key", "text", "principal", "error")
    ids = {
        "dlv": ("pk",),
        "conv": ("destination_id", "source_id"),
        "turn": ("source_turn_id", "target_turn_id", "receiving_turn_id"),
        "msg": ("message_id",),
    }
    search_advice = "The id of a delivery, a conversation, a turn or a message, or its beginning."
    list_display = ["id", "to", "since", "delivered", "outcome", "attempts"]
    list_filter = [DeliveredFilter, AgeFilter]

    @admin.display(description="destination")
    def to(self, delivery: Delivery) -> str:
        return self.link("conversation", delivery.destination_id)

    @admin.display(description="made")
    def since(self, delivery: Delivery) -> str:
        return display.age(delivery.created_at)

    @admin.display(description="delivered")
    def delivered(self, delivery: Delivery) -> str:
        return display.age(delivery.delivered_at) if delivery.delivered_at else "not yet"


class WaitAdmin(RowAdmin):
    ids = {"wait": ("pk",), "turn": ("turn_id", "target_id")}
    search_advice = "The id of a wait or a turn, or its beginning."
    list_display = ["id", "waiting", "on", "on_status", "since"]
    list_filter = [TargetFilter, AgeFilter]
    list_select_related = ["target"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any, Any]:
        big = ("context", "principal", "options", "candidate", "output_text", "error", "callback_error")
        return super().get_queryset(request).defer(*(f"target__{column}" for column in big))

    @admin.display(description="turn")
    def waiting(self, wait: Wait) -> str:
        return self.link("turn", wait.turn_id)

    @admin.display(description="waits for")
    def on(self, wait: Wait) -> str:
        return self.link("turn", wait.target_id)

    @admin.display(description="whose status is")
    def on_status(self, wait: Wait) -> str:
        return display.status(wait.target.status)

    @admin.display(description="since")
    def since(self, wait: Wait) -> str:
        return display.age(wait.created_at)
