"""The testing kit: scripted models, a model server, crashes on demand, and the rules every database must obey.

Importing it honours `TURNKIT_CRASH_AT=point[:nth[:kill|raise|block]]`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from turnkit_django.testing import crashes

if TYPE_CHECKING:
    from turnkit_django.testing.asserts import assert_clean
    from turnkit_django.testing.clients import ScriptedModel, scripted_model
    from turnkit_django.testing.crashes import Crash, crash_at
    from turnkit_django.testing.model_server import model_server
    from turnkit_django.testing.script import call, raw, text
    from turnkit_django.testing.servers import embedded_servers
    from turnkit_django.testing.strict import StrictRequestError, check_request
    from turnkit_django.testing.workers import drain

_HOME = {
    "Crash": "crashes",
    "ScriptedModel": "clients",
    "StrictRequestError": "strict",
    "assert_clean": "asserts",
    "call": "script",
    "check_request": "strict",
    "crash_at": "crashes",
    "drain": "workers",
    "embedded_servers": "servers",
    "model_server": "model_server",
    "raw": "script",
    "scripted_model": "clients",
    "text": "script",
}

__all__ = [
    "Crash",
    "ScriptedModel",
    "StrictRequestError",
    "assert_clean",
    "call",
    "check_request",
    "crash_at",
    "drain",
    "embedded_servers",
    "model_server",
    "raw",
    "scripted_model",
    "text",
]

crashes.arm_from_environment()


class _Package(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        # Importing the module `model_server` would put it in the place of the function of that name.
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    # Late: models need `django.setup()`, and `-m turnkit_django.testing.model_server` must not be imported twice.
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
