"""Tools: functions and classes that a model may call."""

from turnkit_django.tools.context import ToolContext
from turnkit_django.tools.results import normalize_result
from turnkit_django.tools.tool import Tool, tool

__all__ = ["Tool", "ToolContext", "normalize_result", "tool"]
