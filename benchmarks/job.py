"""The tool turn, the same for every system: its texts, and a model that answers at once."""

from __future__ import annotations

from typing import Any

TASK = "My order number 17 has not arrived yet, could you please find out where it is and tell me about it?"
TOOL = "look_up"
ARGUMENTS = {"query": "order 17, not arrived, ordered three weeks ago"}
RESULT = {"found": True, "count": 1}
ANSWER = (
    "Thank you for asking. Your order number 17 has left our warehouse and is with the carrier now. It should be with "
    "you within the next two working days; if it is not, please write to us again here."
)


def look_up(query: str) -> dict[str, Any]:
    """Find orders."""
    return dict(RESULT)


def is_answered(messages: list[dict[str, Any]]) -> bool:
    """Whether the tool has spoken, so that the model's next words are its answer."""
    return bool(messages[-1]["role"] == "tool")
