"""Django signals, one a family of events. Receivers are called after the commit with `event`.

    @receiver(turn_changed)
    def note(event, **kwargs): ...

A receiver that raises is logged and changes nothing, also not for the others.
"""

from __future__ import annotations

import logging
from typing import Any

from django.dispatch import Signal

from turnkit_django import conf

__all__ = ["delivery_changed", "message_created", "model_call_changed", "tool_call_changed", "turn_changed"]

logger = logging.getLogger("turnkit")


class _EventSignal(Signal):
    def _log_robust_failure(self, receiver: Any, err: BaseException) -> None:
        """Instead of Django's own line, which would print the traceback with the secrets in it."""
        log_failure(name_of(receiver), err)


turn_changed = _EventSignal()
"""Events of turns (`turn.…`). Sender: the model `Turn`."""
model_call_changed = _EventSignal()
"""Events of model calls (`model.…`). Sender: the model `Turn`, since a model call has no row of its own."""
message_created = _EventSignal()
"""`message.created`. Sender: the model `Message`."""
tool_call_changed = _EventSignal()
"""Events of tool calls (`tool_call.…`). Sender: the model `ToolExecution`."""
delivery_changed = _EventSignal()
"""Events of deliveries (`delivery.…`). Sender: the model `Delivery`."""


def name_of(receiver: object) -> str:
    return str(getattr(receiver, "__qualname__", type(receiver).__name__))


def log_failure(name: str, problem: BaseException) -> None:
    """Tell an operator that a receiver of events has failed."""
    told = {"event": "receiver.failed", "receiver": name}
    logger.error("receiver %s failed, which changes nothing: %s", name, conf.clean_traceback(problem), extra=told)
