from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from example_project.helpdesk.models import Customer, Order, Refund, Ticket, TicketQuerySet
from example_project.helpdesk.thread import WORDS
from example_project.helpdesk.tickets import current_turn
from turnkit_django.core.display import harmless

if TYPE_CHECKING:
    CustomerBase = admin.ModelAdmin[Customer]
    OrderBase = admin.ModelAdmin[Order]
    RefundBase = admin.ModelAdmin[Refund]
    TicketBase = admin.ModelAdmin[Ticket]
else:
    CustomerBase = OrderBase = RefundBase = TicketBase = admin.ModelAdmin

_SHORT = 80
_LONG = 20_000


@admin.register(Customer)
class CustomerAdmin(CustomerBase):
    list_display = ["__str__", "email", "user"]
    list_select_related = ["user"]
    search_fields = ["name", "email"]
    autocomplete_fields = ["user"]


@admin.register(Order)
class OrderAdmin(OrderBase):
    list_display = ["number", "item", "total", "currency", "status", "customer"]
    list_filter = ["status"]
    list_select_related = ["customer"]
    search_fields = ["number", "item", "customer__name"]
    autocomplete_fields = ["customer"]


@admin.register(Refund)
class RefundAdmin(RefundBase):
    """Money that went back: to be read only."""

    list_display = ["order", "amount", "created_at"]
    list_select_related = ["order"]
    search_fields = ["order__number", "idempotency_key"]
    fields = ["order", "amount", "why", "idempotency_key", "created_at"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Refund | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Refund | None = None) -> bool:
        return False

    @admin.display(description="reason")
    def why(self, refund: Refund) -> str:
        return harmless(refund.reason, limit=_LONG)


@admin.register(Ticket)
class TicketAdmin(TicketBase):
    """Tickets are opened and answered in the help desk; here they are read, and removed once their work has ended."""

    list_display = ["__str__", "customer", "beginning", "word", "created_at"]
    list_select_related = ["customer"]
    list_filter = ["created_at"]
    search_fields = ["customer__name", "customer__email", "text"]
    fields = ["customer", "conversation_link", "word", "message", "staff_notes", "created_at"]

    def get_queryset(self, request: HttpRequest) -> TicketQuerySet:
        return Ticket.objects.with_status()

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Ticket | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Ticket | None = None) -> bool:
        """Not while the agent is at work: its tools need the ticket."""
        turn = current_turn(obj) if obj else None
        return super().has_delete_permission(request, obj) and (turn is None or turn.is_terminal)

    @admin.display(description="text")
    def beginning(self, ticket: Ticket) -> str:
        return harmless(ticket.text, limit=_SHORT)

    @admin.display(description="state")
    def word(self, ticket: Ticket) -> str:
        return WORDS.get(ticket.status, "closed")

    @admin.display(description="text")
    def message(self, ticket: Ticket) -> str:
        return harmless(ticket.text, limit=_LONG)

    @admin.display(description="notes")
    def staff_notes(self, ticket: Ticket) -> str:
        return harmless(ticket.notes, limit=_LONG)

    @admin.display(description="conversation")
    def conversation_link(self, ticket: Ticket) -> SafeString:
        address = reverse("admin:turnkit_conversation_change", args=[ticket.conversation_id])
        return format_html('<a href="{}">{}</a>', address, ticket.conversation_id)
