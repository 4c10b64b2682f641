"""Agents by name: rows hold a name, workers look the definition up."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Mapping
from types import MappingProxyType

from turnkit_django.agents.agent import Agent
from turnkit_django.errors import ConfigError

_agents: dict[str, Agent] = {}
_lock = threading.Lock()


def register(agent: Agent) -> Agent:
    """Make `agent` known by its name, and return it.

    The same definition may be registered again: an equal fingerprint, or the same module and name (a reload). The
    newest object is kept.

    Raises:
        ConfigError: Another definition has the name.
    """
    if not isinstance(agent, Agent):
        raise ConfigError(f"expected an Agent, got {agent!r:.80} ({type(agent).__name__}); write register(Agent(...))")
    with _lock:
        known = _agents.get(agent.name)
        if known is not None and known.module != agent.module and known.fingerprint != agent.fingerprint:
            raise ConfigError(
                f"expected one definition of agent `{agent.name}`, got two: in `{known.module}` and in "
                f"`{agent.module}`; give one of them another name"
            )
        _agents[agent.name] = agent
    return agent


def get_agent(name: str) -> Agent:
    """The agent registered as `name`.

    Raises:
        ConfigError: There is none; lists near misses.
    """
    agents = registered()
    if name in agents:
        return agents[name]
    near = difflib.get_close_matches(str(name), agents, n=3)
    if near:
        hint = f"did you mean {' or '.join(f'`{each}`' for each in near)}?"
    else:
        hint = f"registered: {', '.join(f'`{each}`' for each in sorted(agents)) or 'none'}"
    raise ConfigError(
        f"expected the name of a registered agent, got {name!r:.120}; {hint} "
        "Put `register(Agent(...))` into the `agents.py` of an installed app"
    )


def registered() -> Mapping[str, Agent]:
    """The agents known now, by name."""
    with _lock:
        return MappingProxyType(dict(_agents))
