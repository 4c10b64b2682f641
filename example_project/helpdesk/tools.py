"""What the agent may do. Each tool works for the customer of its own ticket only, whatever the model asks for."""

from __future__ import annotations

import logging
import os
from decimal import Decimal
from typing import Annotated

from django.db import transaction
from django.db.models import F, Value
from django.db.models.functions import Concat
from pydantic import Field

from example_project.helpdesk.models import Order, Refund, Ticket
from turnkit_django import ToolContext, tool
from turnkit_django.errors import ToolError

logger = logging.getLogger(__name__)

_MOST_ORDERS = 20

Amount = Annotated[Decimal, Field(gt=0, max_digits=10, decimal_places=2)]


@tool(recovery="replay_safe")
def lookup_order(order_number: int, *, context: ToolContext) -> dict[str, object]:
    """Look up one order of the customer.

    Args:
        order_number: The number printed on the invoice.
    """
    order = _order(order_number, context)
    return {
        "order_number": order.number,
        "item": order.item,
        "status": order.status,
        "total": order.total,
        "refunded": order.refunded,
        "currency": order.currency,
    }


@tool(recovery="replay_safe")
def list_orders(*, context: ToolContext) -> dict[str, object]:
    """List the customer's latest orders, at most 20."""
    orders = Order.objects.filter(customer=_ticket(context).customer_id).order_by("-number")[:_MOST_ORDERS]
    return {"orders": [{"order_number": each.number, "item": each.item, "status": each.status} for each in orders]}


@tool(recovery="replay_safe")
def refund(order_number: int, amount: Amount, reason: str, *, context: ToolContext) -> dict[str, object]:
    """Pay back all or part of an order.

    Args:
        order_number: The number printed on the invoice.
        amount: In the order's currency; at most what was paid and not refunded yet.
        reason: Why, in a few words.
    """
    # Written before anything is done, so that every call is counted, also one whose process dies.
    logger.info("refund called by process %s with key %s", os.getpid(), context.idempotency_key)
    with transaction.atomic():
        order = _order(order_number, context, is_locked=True)
        others = order.refunds.exclude(idempotency_key=context.idempotency_key)
        left = order.total - sum((other.amount for other in others), Decimal())
        if amount > left:
            raise ToolError(f"{amount} {order.currency} is too much: {left} of order {order.number} can be refunded")
        # The same call may come twice, after a crash: its key finds what the first one did.
        made, _ = Refund.objects.get_or_create(
            idempotency_key=context.idempotency_key, defaults={"order": order, "amount": amount, "reason": reason}
        )
    return {"refund": made.pk, "order_number": order.number, "amount": made.amount, "currency": order.currency}


@tool
def add_note(text: str, *, context: ToolContext) -> dict[str, object]:
    """Leave a note for the staff on the ticket.

    Args:
        text: One sentence.
    """
    # Nothing would tell a repeated note from a second one, so this tool keeps the default recovery, "unknown".
    ticket = _ticket(context)
    Ticket.objects.filter(pk=ticket.pk).update(notes=Concat(F("notes"), Value(f"{text.strip()}\n")))
    return {"ticket": ticket.pk}


def _ticket(context: ToolContext) -> Ticket:
    ticket = Ticket.objects.filter(conversation=context.conversation).first()
    if ticket is None:
        raise ToolError("this conversation has no ticket")
    return ticket


def _order(number: int, context: ToolContext, *, is_locked: bool = False) -> Order:
    orders = Order.objects.filter(customer=_ticket(context).customer_id)
    if is_locked:
        # Two refunds of one order wait for each other, so that both together cannot exceed its total.
        orders = orders.select_for_update()
    order = orders.filter(number=number).first()
    if order is None:
        raise ToolError(f"the customer has no order {number}")
    return order
