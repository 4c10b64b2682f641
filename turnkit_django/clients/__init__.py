"""Door 1: models. Importing this package, or naming `LiteLLMClient`, does not import litellm."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turnkit_django.clients.base import ModelClient
    from turnkit_django.clients.litellm import LiteLLMClient

__all__ = ["LiteLLMClient", "ModelClient"]

_HOMES = {"LiteLLMClient": "turnkit_django.clients.litellm", "ModelClient": "turnkit_django.clients.base"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
