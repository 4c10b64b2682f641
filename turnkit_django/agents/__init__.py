"""Agents: what a turn runs, and the names they are found by."""

from turnkit_django.agents.agent import Agent
from turnkit_django.agents.registry import get_agent, register, registered

__all__ = ["Agent", "get_agent", "register", "registered"]
