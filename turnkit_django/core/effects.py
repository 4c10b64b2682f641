"""What a tool may ask the engine to do: values that a coordinating tool returns, and that the engine applies.

A tool that returns one has done nothing that lasts. The engine applies each once, whatever dies meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a turn of another agent, in a conversation of its own.

    Attributes:
        agent_name: Who does it.
        task: All that the agent sees: its first message.
        is_detached: Whether the calling turn goes on at once instead of waiting for the answer.
        has_callback: Whether the end of a detached turn is told to the calling conversation.
    """

    agent_name: str
    task: str
    is_detached: bool = False
    has_callback: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to another conversation.

    Attributes:
        conversation_id: Where to.
        text: Of the message.
    """

    conversation_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Join:
    """Go on when other turns have ended.

    Attributes:
        turn_ids: Whose ends to wait for, in the order in which the model reads their results.
    """

    turn_ids: tuple[str, ...]


Effect: TypeAlias = Launch | Send | Join
