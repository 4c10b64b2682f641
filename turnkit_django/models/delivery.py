from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from turnkit_django.core.ids import new_delivery_id
from turnkit_django.models.base import IdField, choices, one_of
from turnkit_django.models.querysets import DeliveryQuerySet


class Outcome(StrEnum):
    """What became of a steering input."""

    NONE = ""
    APPLIED = "applied"
    DROPPED = "dropped"


class Delivery(models.Model):
    """Durable input: a message on its way to a conversation, or a steering input aimed at one turn."""

    id = IdField(default=new_delivery_id)
    source = models.ForeignKey(
        "turnkit.Conversation",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="outbox",
        db_index=False,
    )
    destination = models.ForeignKey(
        "turnkit.Conversation", on_delete=models.CASCADE, related_name="inbox", db_index=False
    )
    source_turn = models.ForeignKey(
        "turnkit.Turn", on_delete=models.SET_NULL, null=True, blank=True, related_name="+", db_index=False
    )
    target_turn = models.ForeignKey(
        "turnkit.Turn", on_delete=models.CASCADE, null=True, blank=True, related_name="+", db_index=False
    )
    message = models.ForeignKey(
        "turnkit.Message", on_delete=models.SET_NULL, null=True, blank=True, related_name="+", db_index=False
    )
    receiving_turn = models.ForeignKey(
        "turnkit.Turn", on_delete=models.SET_NULL, null=True, blank=True, related_name="+", db_index=False
    )
    key = models.TextField()
    text = models.TextField()
    principal = models.JSONField(null=True, blank=True)
    sequence = models.PositiveBigIntegerField(default=0, db_default=0, help_text="Order of steering inputs of a turn.")
    request_id = models.CharField(max_length=32, blank=True, default="", db_default="")
    outcome = models.TextField(choices=choices(Outcome), blank=True, default="", db_default="")
    hops = models.PositiveIntegerField(
        default=0, db_default=0, help_text="How many messages of agents led to it, itself included."
    )
    attempts = models.PositiveIntegerField(default=0, db_default=0)
    not_before = models.DateTimeField(null=True, blank=True)
    error = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    delivered_at = models.DateTimeField(null=True, blank=True)

    if TYPE_CHECKING:
        source_id: str | None
        destination_id: str
        source_turn_id: str | None
        receiving_turn_id: str | None
        message_id: str | None

    objects = DeliveryQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "deliveries"
        indexes = [
            models.Index(fields=["source", "created_at"], name="turnkit_delivery_outbox"),
            models.Index(fields=["destination", "created_at"], name="turnkit_delivery_inbox"),
            models.Index(
                fields=["created_at"], name="turnkit_delivery_pending", condition=Q(delivered_at__isnull=True)
            ),
        ]
        indexes += [
            models.Index(
                fields=["destination", "created_at"],
                name="turnkit_delivery_unread",
                condition=Q(delivered_at__isnull=False, request_id="", target_turn__isnull=True),
            )
        ]
        indexes += [
            models.Index(fields=[link], name=f"turnkit_dlv_{link}", condition=Q(**{f"{link}__isnull": False}))
            for link in ("source_turn", "message", "receiving_turn")
        ]
        constraints = [
            models.CheckConstraint(name="turnkit_delivery_outcome_is_known", condition=one_of("outcome", Outcome)),
            models.CheckConstraint(
                name="turnkit_delivery_only_steering_has_an_outcome",
                condition=Q(outcome="") | Q(target_turn__isnull=False),
            ),
            models.CheckConstraint(name="turnkit_delivery_key_is_not_empty", condition=~Q(key="")),
            models.UniqueConstraint(
                fields=["source", "key"],
                name="turnkit_delivery_key_is_unique_per_source",
                condition=Q(target_turn__isnull=True),
            ),
            models.UniqueConstraint(
                fields=["target_turn", "key"],
                name="turnkit_delivery_steering_key_is_unique_per_turn",
                condition=Q(target_turn__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.id
