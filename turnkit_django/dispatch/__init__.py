"""The door to the queue. `RQDispatcher` sends wake-ups; `Worker` runs them without forking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnkit_django.dispatch.rq import RQDispatcher, Worker

__all__ = ["RQDispatcher", "Worker"]


def __getattr__(name: str) -> Any:
    # Late, because rq and django_rq read settings when they are imported.
    if name in __all__:
        from turnkit_django.dispatch import rq

        return getattr(rq, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
