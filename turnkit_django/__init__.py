"""Durable AI agents for Django: declarations, safe to import before Django is set up.

Rows are in `turnkit_django.models`, which needs the app registry.
"""

from turnkit_django import errors
from turnkit_django.agents import Agent, get_agent, register
from turnkit_django.tools import Tool, ToolContext, tool

__all__ = ["Agent", "Tool", "ToolContext", "errors", "get_agent", "register", "tool"]
