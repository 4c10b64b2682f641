"""The help desk's own tables. Only `Ticket` knows that an agent exists."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models
from django.db.models import OuterRef, Q, Subquery, Sum
from django.urls import reverse

from turnkit_django.core.display import harmless
from turnkit_django.models import Turn

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser, User
    from django.db.models.fields.related_descriptors import RelatedManager


class Customer(models.Model):
    name = models.CharField(max_length=200)
    email = models.EmailField(unique=True)
    user = models.OneToOneField(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="customer",
        help_text="Who logs in as this customer.",
    )

    if TYPE_CHECKING:
        orders: RelatedManager[Order]
        tickets: RelatedManager[Ticket]

    def __str__(self) -> str:
        return harmless(self.name)


class Order(models.Model):
    class Status(models.TextChoices):
        PAID = "paid"
        SHIPPED = "shipped"
        DELIVERED = "delivered"

    number = models.PositiveIntegerField(unique=True, help_text="As printed on the invoice.")
    customer = models.ForeignKey(Customer, on_delete=models.PROTECT, related_name="orders")
    item = models.CharField(max_length=200)
    total = models.DecimalField(max_digits=10, decimal_places=2)
    currency = models.CharField(max_length=3, default="EUR")
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PAID)

    if TYPE_CHECKING:
        refunds: RelatedManager[Refund]

    class Meta:
        constraints = [models.CheckConstraint(name="helpdesk_order_total_is_positive", condition=Q(total__gt=0))]

    def __str__(self) -> str:
        return f"order {self.number}"

    @property
    def refunded(self) -> Decimal:
        return self.refunds.aggregate(sum=Sum("amount"))["sum"] or Decimal("0.00")


class Refund(models.Model):
    """Money that went back. The unique key makes a repeated call of the tool find the first one's row."""

    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="refunds")
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    reason = models.TextField()
    idempotency_key = models.CharField(max_length=100, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.CheckConstraint(name="helpdesk_refund_amount_is_positive", condition=Q(amount__gt=0))]

    def __str__(self) -> str:
        return f"{self.amount} for order {self.order_id}"


class TicketQuerySet(models.QuerySet["Ticket"]):
    def visible_to(self, user: User | AnonymousUser) -> TicketQuerySet:
        """A customer's own tickets; all of them for the staff."""
        if not user.is_authenticated:
            return self.none()
        return self if user.is_staff else self.filter(customer__user=user)

    def with_status(self) -> TicketQuerySet:
        """With `status`: that of the last turn, or None."""
        last = Turn.objects.filter(conversation=OuterRef("conversation")).submitted().order_by("-lane_position")
        return self.annotate(status=Subquery(last.values("status")[:1]))


class Ticket(models.Model):
    """What a customer wrote, and the conversation in which the agent deals with it."""

    customer = models.ForeignKey(Customer, on_delete=models.PROTECT, related_name="tickets")
    conversation = models.ForeignKey("turnkit.Conversation", on_delete=models.PROTECT, related_name="tickets")
    text = models.TextField()
    notes = models.TextField(blank=True, default="", help_text="For the staff, one line each.")
    key = models.UUIDField(default=uuid.uuid4, editable=False, help_text="Of the form that opened it.")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TicketQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-pk"]
        constraints = [
            models.UniqueConstraint(fields=["customer", "key"], name="helpdesk_ticket_one_per_form"),
        ]

    def __str__(self) -> str:
        return f"ticket {self.pk}"

    def get_absolute_url(self) -> str:
        return reverse("helpdesk:ticket", args=[self.pk])
