"""The read vocabulary of turns and deliveries. Times are the database's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Exists, OuterRef, Q

from turnkit_django.core.states import OPEN, TERMINAL, Phase, TurnState

if TYPE_CHECKING:
    from turnkit_django.models.delivery import Delivery  # noqa: F401  named as text in the base class below
    from turnkit_django.models.turn import Turn  # noqa: F401  named as text in the base class below


class StatementTime(models.Func):
    """When the statement began. `now()` would stand still inside a transaction."""

    template = "statement_timestamp()"
    output_field = models.DateTimeField()


class ClockTime(models.Func):
    """This very moment, also after a wait for a lock."""

    template = "clock_timestamp()"
    output_field = models.DateTimeField()


class TurnQuerySet(models.QuerySet["Turn"]):
    def unfinished(self) -> TurnQuerySet:
        """Turns that have not ended, previews included."""
        return self.filter(status__in=OPEN)

    def submitted(self) -> TurnQuerySet:
        return self.filter(submitted_at__isnull=False)

    def placed(self) -> TurnQuerySet:
        """Unfinished turns with a place in their lane, which all have that were submitted or started.

        The words are those of the index `turnkit_turn_open_in_lane`: a scan then passes over all that has ended.
        """
        return self.filter(status__in=OPEN, lane_position__isnull=False)

    def due(self) -> TurnQuerySet:
        """Submitted and pending, with nothing to wait for and no time in the future."""
        return (
            self.placed()
            .submitted()
            .filter(
                Q(not_before__isnull=True) | Q(not_before__lte=StatementTime()),
                status=TurnState.PENDING,
                pending_dependencies=0,
            )
        )

    def busy(self) -> TurnQuerySet:
        """Whatever keeps a turn that was not submitted from running now: started turns and submitted work."""
        return self.placed().filter(Q(started_at__isnull=False) | Q(submitted_at__isnull=False))

    def heads(self) -> TurnQuerySet:
        """Due turns whose turn it is: nothing in their lane stands before them or is started."""
        turns = self.model._default_manager.using(self.db)
        lane = turns.placed().filter(conversation=OuterRef("conversation"))
        before = lane.filter(lane_position__lt=OuterRef("lane_position"))
        others = lane.exclude(pk=OuterRef("pk")).filter(started_at__isnull=False)
        return self.due().checkable().filter(~Exists(before), ~Exists(others))

    def checkable(self) -> TurnQuerySet:
        """Without those that maintenance has set aside for now."""
        return self.filter(Q(next_check_at__isnull=True) | Q(next_check_at__lte=StatementTime()))

    def expired(self) -> TurnQuerySet:
        """Running, though the lease ended: their worker is dead."""
        return self.checkable().filter(status=TurnState.RUNNING, lease_expires_at__lt=StatementTime())

    def overdue(self) -> TurnQuerySet:
        """Unfinished, unclaimed and past the deadline. An answer that is there already is still delivered."""
        late = self.placed().checkable().filter(deadline_at__lt=StatementTime())
        return late.exclude(status=TurnState.RUNNING).exclude(phase=Phase.OUTPUT)


class DeliveryQuerySet(models.QuerySet["Delivery"]):
    def undelivered(self) -> DeliveryQuerySet:
        """Messages that are not in the transcript of their conversation yet."""
        return self.filter(delivered_at__isnull=True, target_turn__isnull=True)

    def unread(self) -> DeliveryQuerySet:
        """Messages in a transcript that no model call has included.

        The words are those of the index `turnkit_delivery_unread`.
        """
        return self.filter(delivered_at__isnull=False, request_id="", target_turn__isnull=True)

    def unanswered(self) -> DeliveryQuerySet:
        """Unread messages that no unfinished turn is meant to read."""
        ended = [state.value for state in TERMINAL]
        return self.unread().filter(
            Q(receiving_turn__isnull=True) | Q(receiving_turn__status__in=ended), message__isnull=False
        )

    def timely(self) -> DeliveryQuerySet:
        """Without those that wait for a time in the future."""
        return self.filter(Q(not_before__isnull=True) | Q(not_before__lte=StatementTime()))
