"""The checks of an agent's options. Every message names the agent, what was expected, what came and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from turnkit_django.core.content import Json, is_storable, shown
from turnkit_django.core.events import OnEvent, receiver_problem
from turnkit_django.core.requests import MOST
from turnkit_django.errors import ConfigError
from turnkit_django.tools.builtin.delegation import Delegate, SubAgentTool
from turnkit_django.tools.tool import Tool, as_tool

if TYPE_CHECKING:
    from turnkit_django.clients.base import ModelClient

MAX_TOOLS = 128
"""Providers refuse a request that offers more."""

_EFFORTS = ("low", "medium", "high")


def check_thinking(agent: str, value: object) -> Mapping[str, Json] | None:
    """The `thinking` of an agent or of one of its turns.

    Raises:
        ConfigError: Names the agent, what was expected and what came.
    """
    return Options(agent).thinking(value)


class Options:
    """Checks the options of one agent; every message names it."""

    def __init__(self, agent: str) -> None:
        self.agent = agent

    def wrong(self, option: str, expected: str, value: object, advice: str = "") -> ConfigError:
        got = f"{shown(value)} ({type(value).__name__})"
        return ConfigError(f"agent `{self.agent}`: expected `{option}` to be {expected}, got {got}{advice}")

    def text(self, option: str, value: object, *, may_be_empty: bool = True) -> str:
        if not isinstance(value, str) or not (may_be_empty or value.strip()):
            raise self.wrong(option, "text" if may_be_empty else "text that is not empty", value)
        if not is_storable(value):
            where = f" at character {next(place for place, letter in enumerate(value) if not is_storable(letter))}"
            advice = "; PostgreSQL cannot hold it, and models cannot be sent it"
            raise self.wrong(option, "text without NUL and lone surrogates", value, advice=f"{where}{advice}")
        return value

    def number(self, option: str, value: object, *, least: int) -> int | None:
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.wrong(option, f"a whole number of at least {least}, or None", value)
        if value > MOST:
            raise self.wrong(option, f"at most {MOST}, or None", value)
        return value

    def duration(self, option: str, value: object) -> timedelta | None:
        if value is None:
            return None
        seconds: float = 0
        if isinstance(value, timedelta):
            seconds = value.total_seconds()
        elif isinstance(value, int) and not isinstance(value, bool):
            seconds = value
        if seconds <= 0:
            raise self.wrong(option, "a timedelta or a whole number of seconds, more than 0, or None", value)
        if seconds > MOST:
            raise self.wrong(option, f"at most {MOST} seconds, or None", value)
        return value if isinstance(value, timedelta) else timedelta(seconds=seconds)

    def tools(self, entries: object, *, delegates: Sequence[Delegate] = ()) -> tuple[Tool, ...]:
        """The tools, and one for each agent that tasks are given to."""
        if not isinstance(entries, list | tuple):
            raise self.wrong("tools", "a list", entries, advice="; write tools=[...]")
        entries = [*entries, *(SubAgentTool.for_agent(delegate) for delegate in delegates)]
        if len(entries) > MAX_TOOLS:
            raise ConfigError(
                f"agent `{self.agent}`: expected at most {MAX_TOOLS} tools, got {len(entries)}; "
                "providers refuse more: split the work over several agents"
            )
        tools: dict[str, Tool] = {}
        for entry in entries:
            tool = self._tool(entry)
            name = tool.spec().name
            if name in tools:
                raise ConfigError(
                    f"agent `{self.agent}`: expected each tool name once, got `{name}` twice; give one another `name`"
                )
            tools[name] = tool
        return tuple(tools.values())

    def _tool(self, entry: object) -> Tool:
        try:
            tool = as_tool(entry)
            tool.spec()
        except ConfigError as error:
            raise ConfigError(f"agent `{self.agent}`: {error}") from error
        return tool

    def thinking(self, value: object) -> Mapping[str, Json] | None:
        if value is None:
            return None
        expected = 'a dict with "effort" (low, medium or high) and/or "budget" (a positive whole number)'
        if not isinstance(value, Mapping) or not value or not set(value) <= {"effort", "budget"}:
            raise self.wrong("thinking", expected, value)
        if "effort" in value and value["effort"] not in _EFFORTS:
            raise self.wrong("thinking", expected, value)
        if "budget" in value and self.number("thinking budget", value["budget"], least=1) is None:
            raise self.wrong("thinking", expected, value)
        return MappingProxyType(dict(value))

    def client(self, value: object) -> ModelClient | None:
        if value is not None and (isinstance(value, type) or not callable(getattr(value, "complete", None))):
            raise self.wrong("client", "a model client (an instance with `validate` and `complete`)", value)
        return cast("ModelClient | None", value)

    def on_event(self, value: object) -> tuple[OnEvent, ...]:
        receivers = value if isinstance(value, list | tuple) else [] if value is None else [value]
        for receiver in receivers:
            if problem := receiver_problem(receiver):
                raise self.wrong("on_event", f"{problem}, or a list of such, or None", receiver)
        return tuple(receivers)
