"""Tools: functions and classes that a model may call."""

from turnkit_django.tools.builtin import LaunchAgent, SendMessage, SubAgentTool, WaitFor
from turnkit_django.tools.context import ToolContext
from turnkit_django.tools.results import normalize_result
from turnkit_django.tools.tool import Tool, tool

__all__ = [
    "LaunchAgent",
    "SendMessage",
    "SubAgentTool",
    "Tool",
    "ToolContext",
    "WaitFor",
    "normalize_result",
    "tool",
]
