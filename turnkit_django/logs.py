"""Events as log lines: a subscriber like any other. All wording of these lines is here."""

from __future__ import annotations

import logging

from turnkit_django.core import events
from turnkit_django.core.content import shown
from turnkit_django.core.display import one_line
from turnkit_django.core.events import Event

logger = logging.getLogger("turnkit")

_LEVELS: dict[type[Event], int] = {
    # Somebody should look, or may have to.
    events.TurnFailed: logging.WARNING,
    events.TurnStale: logging.WARNING,
    events.TurnParked: logging.WARNING,
    events.TurnRecovered: logging.WARNING,
    events.ToolCallInterrupted: logging.WARNING,
    events.DeliverySetAside: logging.WARNING,
    # How turns end, and what went wrong on the way.
    events.TurnCompleted: logging.INFO,
    events.TurnCancelled: logging.INFO,
    events.TurnPaused: logging.INFO,
    events.TurnReleased: logging.INFO,
    events.TurnResumed: logging.INFO,
    events.ModelFailed: logging.INFO,
    events.ToolCallFailed: logging.INFO,
}


def log_event(*, event: Event, **_: object) -> None:
    """Write one line on logger `turnkit`; `extra` has the event's fields, with its type under `event`."""
    level = _LEVELS.get(type(event), logging.DEBUG)
    if logger.isEnabledFor(level):
        extra = event.as_dict()
        extra["event"] = extra.pop("type")
        logger.log(level, "%s", _sentence(event), extra=extra)


def _sentence(event: Event) -> str:
    kind, _, outcome = event.type.partition(".")
    subject = f"turn {event.turn_id} of agent {event.agent_name}"
    match event:
        case events.MessageCreated():
            return f"{subject}: message {event.message_id} of role {event.role} created"
        case events.ToolCallEvent():
            told = f"{subject}: tool call {event.execution_id} of {shown(event.tool_name)} {outcome}"
        case events.DeliveryEvent():
            told = f"delivery {event.delivery_id} from {event.source_id} to {event.destination_id} {outcome}"
        case events.ModelCallEvent():
            told = f"{subject}: {kind} {outcome}"
        case _:
            told = f"{subject} {outcome}"
    if isinstance(event, events.Explained):
        # One line: a tool's or a provider's words must not look like another entry of the log.
        told += f": {event.error_type}: {one_line(event.error_message, limit=events.LONGEST_ERROR)}"
    return told
