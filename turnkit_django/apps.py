"""The composition root: what is connected when Django starts."""

from __future__ import annotations

from django.apps import AppConfig


class TurnkitConfig(AppConfig):
    name = "turnkit_django"
    label = "turnkit"
    verbose_name = "Turnkit"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from turnkit_django import checks, logs, observers, signals  # noqa: F401  the checks register themselves
        from turnkit_django.agents import registry
        from turnkit_django.store import connections

        connections.forget_after_fork()
        for name in signals.__all__:
            signal = getattr(signals, name)
            signal.connect(logs.log_event, dispatch_uid="turnkit.logs")
            signal.connect(observers.tell, dispatch_uid="turnkit.observers")
        registry.discover()
