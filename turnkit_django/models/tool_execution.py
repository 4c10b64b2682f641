from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from turnkit_django.core.ids import new_tool_execution_id
from turnkit_django.core.states import SETTLED, Approval, ToolState
from turnkit_django.models.base import IdField, choices, one_of, together, values


class ToolExecution(models.Model):
    """One call a model asked for, and what became of it. Every proposed call has a row."""

    class Status(models.TextChoices):
        PENDING = ToolState.PENDING
        RUNNING = ToolState.RUNNING
        COMPLETED = ToolState.COMPLETED
        FAILED = ToolState.FAILED
        CANCELLED = ToolState.CANCELLED
        INTERRUPTED = ToolState.INTERRUPTED

    id = IdField(default=new_tool_execution_id)
    turn = models.ForeignKey("turnkit.Turn", on_delete=models.CASCADE, related_name="tool_executions", db_index=False)
    tool_name = models.TextField(help_text="As the model wrote it.")
    tool_call_id = models.TextField(blank=True, help_text="As the provider sent it.")
    call_key = models.CharField(max_length=64)
    ordinal = models.PositiveIntegerField(help_text="Place among all calls of the turn, from 0.")
    status = models.TextField(choices=Status.choices, default=Status.PENDING, db_default=ToolState.PENDING.value)
    is_replay_safe = models.BooleanField(
        default=False, db_default=False, help_text="Whether the tool, when it was called, said it may run again."
    )
    arguments_text = models.TextField(blank=True, help_text="As the model wrote them.")
    arguments = models.JSONField(null=True, blank=True)
    result = models.JSONField(null=True, blank=True)
    error = models.JSONField(null=True, blank=True, help_text="`{type, message, details}`")

    approval = models.TextField(choices=choices(Approval), blank=True, default="", db_default="")
    approval_by = models.JSONField(null=True, blank=True)
    approval_at = models.DateTimeField(null=True, blank=True)
    approval_note = models.TextField(blank=True, default="", db_default="")
    approval_expires_at = models.DateTimeField(null=True, blank=True)
    settled_by = models.JSONField(null=True, blank=True)
    settled_at = models.DateTimeField(null=True, blank=True)

    created_at = models.DateTimeField(db_default=Now(), editable=False)
    started_at = models.DateTimeField(null=True, blank=True)
    completed_at = models.DateTimeField(null=True, blank=True)

    if TYPE_CHECKING:
        turn_id: str

    class Meta:
        ordering = ["turn", "ordinal"]
        constraints = [
            models.CheckConstraint(name="turnkit_execution_status_is_known", condition=one_of("status", ToolState)),
            models.CheckConstraint(name="turnkit_execution_approval_is_known", condition=one_of("approval", Approval)),
            models.CheckConstraint(
                name="turnkit_execution_settled_if_and_only_if_it_has_an_end",
                condition=(
                    Q(status__in=values(SETTLED), completed_at__isnull=False)
                    | (~Q(status__in=values(SETTLED)) & Q(completed_at__isnull=True))
                ),
            ),
            models.CheckConstraint(
                name="turnkit_execution_running_has_a_start",
                condition=~Q(status=ToolState.RUNNING.value) | Q(started_at__isnull=False),
            ),
            models.CheckConstraint(
                name="turnkit_execution_settlement_is_whole", condition=together("settled_by", "settled_at")
            ),
            models.UniqueConstraint(fields=["turn", "call_key"], name="turnkit_execution_call_is_unique_in_turn"),
        ]

    def __str__(self) -> str:
        return f"{self.id} ({self.status})"
