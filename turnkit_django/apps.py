"""The composition root: what is connected when Django starts."""

from __future__ import annotations

from django.apps import AppConfig


class TurnkitConfig(AppConfig):
    name = "turnkit_django"
    label = "turnkit"
    verbose_name = "Turnkit"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from turnkit_django import checks  # noqa: F401  registers them
        from turnkit_django.agents import registry
        from turnkit_django.store import connections

        connections.forget_after_fork()
        registry.discover()
