"""What the body of a tool may see of the run it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from turnkit_django.core.content import Json

# The rows live in a layer that declarations do not import, so their classes cannot be named here. A narrow protocol
# would make a type checker refuse `context.conversation.subject` in an application's tool.
Row: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Passed to a tool that has a parameter named `context`.

    Attributes:
        turn: The `Turn` that called the tool.
        execution: The `ToolExecution` of this call.
        conversation: The `Conversation` of the turn.
        principal: On whose behalf the turn runs; the application's own JSON value, or None.
    """

    turn: Row
    execution: Row
    conversation: Row
    principal: Json

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this call, and for no other call: give it to the system that has the effect."""
        return f"turnkit:tool:{self.execution.id}"
