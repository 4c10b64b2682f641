"""What others are told of a turn that has ended: its callback, and whoever waits for it."""

from __future__ import annotations

from turnkit_django.core.content import Json
from turnkit_django.models import Turn


def envelope(turn: Turn) -> dict[str, Json]:
    """The end of a turn as JSON; a key without a value is left out."""
    told: dict[str, Json] = {
        "conversation_id": turn.conversation_id,
        "turn_id": turn.pk,
        "status": str(turn.status),
        "result": turn.output_text,
        "error": turn.error,
    }
    return {name: value for name, value in told.items() if value is not None}
