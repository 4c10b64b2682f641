from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from turnkit_django.core.content import text_of
from turnkit_django.core.ids import new_message_id
from turnkit_django.models.base import IdField, choices, one_of


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Kind(StrEnum):
    TEXT = "text"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    CONTEXT_SUMMARY = "context_summary"
    IMAGE = "image"
    MEDIA_ANALYSIS = "media_analysis"
    DYNAMIC_CONTEXT = "dynamic_context"


class Message(models.Model):
    """One entry of a conversation. Never changed, never deleted alone."""

    id = IdField(default=new_message_id)
    conversation = models.ForeignKey(
        "turnkit.Conversation", on_delete=models.CASCADE, related_name="messages", db_index=False
    )
    turn = models.ForeignKey(
        "turnkit.Turn", on_delete=models.SET_NULL, null=True, blank=True, related_name="messages", db_index=False
    )
    tool_execution = models.ForeignKey(
        "turnkit.ToolExecution",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="result_messages",
        db_index=False,
    )
    sequence = models.PositiveBigIntegerField(help_text="From 1, without gaps, in the order of storing.")
    role = models.TextField(choices=choices(Role))
    kind = models.TextField(choices=choices(Kind), default=Kind.TEXT.value, db_default=Kind.TEXT.value)
    content = models.JSONField(default=list, help_text="A list of parts: see `core/content.py`.")
    provider = models.TextField(blank=True, default="", db_default="", help_text="Who made an assistant message.")
    metadata = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    if TYPE_CHECKING:
        conversation_id: str
        turn_id: str | None
        tool_execution_id: str | None

    class Meta:
        ordering = ["conversation", "sequence"]
        indexes = [
            models.Index(fields=["turn", "sequence"], name="turnkit_message_of_turn", condition=Q(turn__isnull=False)),
        ]
        constraints = [
            models.CheckConstraint(name="turnkit_message_role_is_known", condition=one_of("role", Role)),
            models.CheckConstraint(name="turnkit_message_kind_is_known", condition=one_of("kind", Kind)),
            models.CheckConstraint(name="turnkit_message_sequence_is_positive", condition=Q(sequence__gte=1)),
            models.UniqueConstraint(fields=["conversation", "sequence"], name="turnkit_message_number_is_unique"),
            models.UniqueConstraint(
                fields=["tool_execution"],
                name="turnkit_message_one_result_per_execution",
                condition=Q(tool_execution__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.id} ({self.role} {self.sequence})"

    @property
    def text(self) -> str:
        """The text parts, joined by newlines."""
        return text_of(self.content)
