from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from turnkit_django.core.ids import new_wait_id
from turnkit_django.models.base import IdField


class Wait(models.Model):
    """An edge: `turn` goes on when `target` has ended. Never deleted; readiness follows from the target."""

    id = IdField(default=new_wait_id)
    turn = models.ForeignKey("turnkit.Turn", on_delete=models.CASCADE, related_name="waits", db_index=False)
    target = models.ForeignKey("turnkit.Turn", on_delete=models.CASCADE, related_name="waiters")
    tool_execution = models.ForeignKey(
        "turnkit.ToolExecution", on_delete=models.SET_NULL, null=True, blank=True, related_name="+", db_index=False
    )
    ordinal = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Its place among the waits of the turn, in the order of asking."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["turn", "target"], name="turnkit_wait_edge_is_unique"),
            models.CheckConstraint(name="turnkit_wait_is_not_on_itself", condition=~Q(turn=F("target"))),
        ]

    def __str__(self) -> str:
        return self.id
