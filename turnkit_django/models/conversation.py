from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models
from django.db.models.functions import Now

from turnkit_django.core.ids import new_conversation_id
from turnkit_django.models.base import IdField, never_negative
from turnkit_django.models.verbs import ConversationVerbs

if TYPE_CHECKING:
    from django.db.models.fields.related_descriptors import RelatedManager

    from turnkit_django.models.delivery import Delivery
    from turnkit_django.models.message import Message
    from turnkit_django.models.turn import Turn


class Conversation(ConversationVerbs, models.Model):
    """A thread of messages, and the lane in which its background turns run one after another."""

    id = IdField(default=new_conversation_id)
    agent_name = models.TextField(help_text="The registered agent that owns the thread.")
    model = models.TextField(blank=True, default="", db_default="", help_text="Overrides the agent's model.")
    subject_type = models.TextField(blank=True, default="", db_default="")
    subject_id = models.TextField(blank=True, default="", db_default="")
    metadata = models.JSONField(default=dict, blank=True, help_text="The application's own facts.")
    context = models.JSONField(default=dict, blank=True, help_text="Default run context of its turns, for tools.")
    principal = models.JSONField(null=True, blank=True, help_text="Identity under which its turns act.")
    next_sequence = models.PositiveBigIntegerField(default=1, db_default=1)
    next_lane_position = models.PositiveBigIntegerField(default=1, db_default=1)
    unread_count = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Messages that were delivered and that no turn has sent to a model yet."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    if TYPE_CHECKING:
        messages: RelatedManager[Message]
        turns: RelatedManager[Turn]
        inbox: RelatedManager[Delivery]
        outbox: RelatedManager[Delivery]

    class Meta:
        indexes = [
            models.Index(
                fields=["subject_type", "subject_id"],
                name="turnkit_conversation_subject",
                condition=~models.Q(subject_type=""),
            ),
        ]
        constraints = [
            models.CheckConstraint(
                name="turnkit_conversation_numbers_start_at_one",
                condition=never_negative("next_sequence", "next_lane_position", "unread_count")
                & ~models.Q(next_sequence=0)
                & ~models.Q(next_lane_position=0),
            ),
        ]

    def __str__(self) -> str:
        return self.id
