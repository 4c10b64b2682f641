"""Named places where a test may stop the world.

Production code calls `reach(name)`; nothing happens unless `turnkit_django.testing` armed that name.
"""

from __future__ import annotations

from collections.abc import Callable

PUBLIC_POINTS = (
    "submitted",
    "claimed",
    "reserved",
    "responded",
    "response_stored",
    "tool_started",
    "tool_returned",
    "result_stored",
    "before_publish",
    "published",
)
"""The boundaries of a turn, in order. Which commit lies before each is in `docs/testing.md`."""

_armed: Callable[[str], None] | None = None


def arm(hook: Callable[[str], None] | None) -> None:
    """Call `hook(name)` at every point reached from now on; None disarms."""
    global _armed
    _armed = hook


def reach(name: str) -> None:
    """Say that the boundary `name` was reached."""
    if _armed is not None:
        _armed(name)
