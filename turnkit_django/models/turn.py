from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from turnkit_django.core.ids import new_turn_id
from turnkit_django.core.states import OPEN, TERMINAL, Phase, TurnState
from turnkit_django.core.usage import Usage
from turnkit_django.models.base import IdField, choices, never_negative, one_of, together, values
from turnkit_django.models.querysets import TurnQuerySet
from turnkit_django.models.verbs import TurnVerbs

if TYPE_CHECKING:
    from django.db.models.fields.related_descriptors import RelatedManager

    from turnkit_django.models.message import Message
    from turnkit_django.models.tool_execution import ToolExecution

_NUMBERS = (
    "iterations",
    "attempts",
    "model_failures",
    "broken_replies",
    "depth",
    "hops",
    "revision",
    "context_sequence",
    "pending_dependencies",
    "open_steering",
    "open_waiters",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "thinking_tokens",
    "unknown_attempts",
)


class Turn(TurnVerbs, models.Model):
    """One run of an agent: from a request to one honest end."""

    class Status(models.TextChoices):
        PENDING = TurnState.PENDING
        RUNNING = TurnState.RUNNING
        WAITING = TurnState.WAITING
        PAUSED = TurnState.PAUSED
        COMPLETED = TurnState.COMPLETED
        FAILED = TurnState.FAILED
        CANCELLED = TurnState.CANCELLED
        STALE = TurnState.STALE

    id = IdField(default=new_turn_id)
    conversation = models.ForeignKey(
        "turnkit.Conversation", on_delete=models.CASCADE, related_name="turns", db_index=False
    )
    # Lineage. PROTECT would make a conversation impossible to erase; a child outlives the erased parent.
    root = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    parent = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="children", db_index=False
    )
    parent_execution = models.ForeignKey(
        "turnkit.ToolExecution", on_delete=models.SET_NULL, null=True, blank=True, related_name="+", db_index=False
    )
    retry_of = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="retries", db_index=False
    )
    trigger = models.ForeignKey(
        "turnkit.Message", on_delete=models.SET_NULL, null=True, blank=True, related_name="+", db_index=False
    )
    depth = models.PositiveIntegerField(default=0, db_default=0)
    hops = models.PositiveIntegerField(
        default=0, db_default=0, help_text="How many messages of agents led to it, one after another."
    )
    callback = models.ForeignKey(
        "turnkit.Conversation",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
        help_text="Where its end is told.",
    )
    callback_error = models.JSONField(null=True, blank=True, help_text="Why its end was not told there.")

    agent_name = models.TextField()
    agent_version = models.TextField(blank=True, default="", db_default="")
    agent_fingerprint = models.CharField(max_length=64, blank=True, default="", db_default="")
    model = models.TextField()
    context = models.JSONField(default=dict, blank=True)
    principal = models.JSONField(null=True, blank=True)
    options = models.JSONField(default=dict, blank=True, help_text="Opaque request options, such as thinking.")
    max_iterations = models.PositiveIntegerField()
    max_output_tokens = models.PositiveIntegerField()
    max_depth = models.PositiveIntegerField(default=3, db_default=3, help_text="The limit of its whole tree.")
    timeout = models.DurationField(null=True, blank=True)

    status = models.TextField(choices=Status.choices, default=Status.PENDING, db_default=TurnState.PENDING.value)
    phase = models.TextField(choices=choices(Phase), default=Phase.MODEL.value, db_default=Phase.MODEL.value)
    submission_key = models.TextField(null=True, blank=True)  # noqa: DJ001  null = none; "" is refused as a key
    lane_position = models.PositiveBigIntegerField(null=True, blank=True)
    context_sequence = models.PositiveBigIntegerField(default=0, db_default=0)

    revision = models.PositiveBigIntegerField(default=0, db_default=0)
    claim_token = models.CharField(max_length=32, null=True, blank=True)  # noqa: DJ001
    claimed_by = models.TextField(null=True, blank=True)  # noqa: DJ001
    claimed_at = models.DateTimeField(null=True, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveIntegerField(default=0, db_default=0)
    model_failures = models.PositiveIntegerField(default=0, db_default=0)
    broken_replies = models.PositiveIntegerField(default=0, db_default=0)
    not_before = models.DateTimeField(null=True, blank=True)
    next_check_at = models.DateTimeField(null=True, blank=True)
    wake_sent_at = models.DateTimeField(null=True, blank=True)

    iterations = models.PositiveIntegerField(default=0, db_default=0)
    request_id = models.CharField(max_length=32, blank=True, default="", db_default="")
    attempt_id = models.CharField(max_length=32, null=True, blank=True)  # noqa: DJ001
    attempt_started_at = models.DateTimeField(null=True, blank=True)
    attempt_reserved = models.DecimalField(max_digits=24, decimal_places=12, null=True, blank=True)

    pause_requested = models.BooleanField(default=False, db_default=False)
    candidate = models.JSONField(
        null=True,
        blank=True,
        help_text="A finished answer that a pause keeps back: `{text, parts, provider, metadata}`.",
    )
    pause_reason = models.TextField(blank=True, default="", db_default="")
    open_steering = models.PositiveIntegerField(default=0, db_default=0)
    open_waiters = models.PositiveIntegerField(default=0, db_default=0)
    pending_dependencies = models.PositiveIntegerField(default=0, db_default=0)
    has_wait_input = models.BooleanField(
        default=False, db_default=False, help_text="Whether the results it waited for are still to be told to it."
    )

    input_tokens = models.PositiveBigIntegerField(default=0, db_default=0)
    output_tokens = models.PositiveBigIntegerField(default=0, db_default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0, db_default=0)
    cache_write_tokens = models.PositiveBigIntegerField(default=0, db_default=0)
    thinking_tokens = models.PositiveBigIntegerField(default=0, db_default=0)
    unknown_attempts = models.PositiveIntegerField(default=0, db_default=0)
    cost = models.DecimalField(
        max_digits=24, decimal_places=12, null=True, blank=True, default=Decimal(0), db_default=Decimal(0)
    )

    output_text = models.TextField(blank=True, default="", db_default="")
    error = models.JSONField(null=True, blank=True, help_text="`{type, message, details}`")

    created_at = models.DateTimeField(db_default=Now(), editable=False)
    submitted_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    deadline_at = models.DateTimeField(null=True, blank=True)
    completed_at = models.DateTimeField(null=True, blank=True)

    objects = TurnQuerySet.as_manager()

    follower: object = None
    """Who follows this turn in this process, while this object lives: see `observers.py`. No column."""

    if TYPE_CHECKING:
        conversation_id: str
        root_id: str | None
        trigger_id: str | None
        parent_execution_id: str | None
        parent_id: str | None
        callback_id: str | None
        retry_of_id: str | None
        messages: RelatedManager[Message]
        tool_executions: RelatedManager[ToolExecution]
        children: RelatedManager[Turn]

    class Meta:
        permissions = [("cancel_turn", "Can cancel turn")]
        # No index on a column that progress or a renewal changes, so that those updates stay HOT.
        indexes = [
            models.Index(fields=["conversation", "lane_position"], name="turnkit_turn_lane"),
            models.Index(
                fields=["conversation", "lane_position"],
                name="turnkit_turn_open_in_lane",
                condition=Q(status__in=values(OPEN)) & Q(lane_position__isnull=False),
            ),
            models.Index(
                fields=["submitted_at", "id"],
                name="turnkit_turn_open_by_age",
                condition=Q(status__in=values(OPEN)) & Q(submitted_at__isnull=False),
            ),
            models.Index(fields=["root"], name="turnkit_turn_in_tree", condition=Q(root__isnull=False)),
            models.Index(fields=["parent"], name="turnkit_turn_of_parent", condition=Q(parent__isnull=False)),
            models.Index(fields=["trigger"], name="turnkit_turn_of_trigger", condition=Q(trigger__isnull=False)),
            models.Index(fields=["retry_of"], name="turnkit_turn_retry_of", condition=Q(retry_of__isnull=False)),
            models.Index(fields=["callback"], name="turnkit_turn_callback", condition=Q(callback__isnull=False)),
        ]
        constraints = [
            models.CheckConstraint(name="turnkit_turn_status_is_known", condition=one_of("status", TurnState)),
            models.CheckConstraint(name="turnkit_turn_phase_is_known", condition=one_of("phase", Phase)),
            models.CheckConstraint(
                name="turnkit_turn_runs_if_and_only_if_claimed",
                condition=(
                    Q(status=TurnState.RUNNING.value, claim_token__isnull=False)
                    | (~Q(status=TurnState.RUNNING.value) & Q(claim_token__isnull=True))
                ),
            ),
            models.CheckConstraint(
                name="turnkit_turn_claim_is_whole",
                condition=together("claim_token", "claimed_by", "claimed_at", "lease_expires_at"),
            ),
            models.CheckConstraint(
                name="turnkit_turn_ended_if_and_only_if_it_has_an_end",
                condition=(
                    Q(status__in=values(TERMINAL), completed_at__isnull=False)
                    | (~Q(status__in=values(TERMINAL)) & Q(completed_at__isnull=True))
                ),
            ),
            models.CheckConstraint(
                name="turnkit_turn_submitted_has_a_place_in_the_lane",
                condition=Q(submitted_at__isnull=True) | Q(lane_position__isnull=False),
            ),
            models.CheckConstraint(name="turnkit_turn_counts_are_not_negative", condition=never_negative(*_NUMBERS)),
            models.CheckConstraint(
                name="turnkit_turn_attempt_is_whole", condition=together("attempt_id", "attempt_started_at")
            ),
            models.CheckConstraint(
                name="turnkit_turn_key_is_not_empty",
                condition=Q(submission_key__isnull=True) | ~Q(submission_key=""),
            ),
            models.UniqueConstraint(
                fields=["conversation"],
                name="turnkit_turn_one_runs_per_conversation",
                condition=Q(status=TurnState.RUNNING.value),
            ),
            models.UniqueConstraint(
                fields=["conversation", "submission_key"],
                name="turnkit_turn_key_is_unique_in_conversation",
                condition=Q(submission_key__isnull=False),
            ),
            models.UniqueConstraint(
                fields=["parent_execution"],
                name="turnkit_turn_one_child_per_execution",
                condition=Q(parent_execution__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.id} ({self.status})"

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def is_background(self) -> bool:
        """Whether it was submitted: durable, and run by workers."""
        return self.submitted_at is not None

    @property
    def usage(self) -> Usage:
        return Usage(
            self.input_tokens,
            self.output_tokens,
            self.cached_tokens,
            self.cache_write_tokens,
            self.thinking_tokens,
            self.unknown_attempts,
        )
