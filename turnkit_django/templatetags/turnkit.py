"""`{% load turnkit %}`: filters for text that models, tools and customers wrote."""

from __future__ import annotations

from django import template

from turnkit_django.core.display import harmless as _harmless

register = template.Library()


@register.filter
def harmless(value: object, limit: int | None = None) -> str:
    """`value` as text that cannot hide or reorder anything; the template still escapes its markup.

    Args:
        value: Any text; other values are turned into text.
        limit: Most characters to show; a longer text is cut and says so.
    """
    return _harmless(str(value), limit=limit)
