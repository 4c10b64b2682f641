"""Agents by name: rows hold a name, workers look the definition up."""

from __future__ import annotations

import difflib
import sys
import threading
from collections.abc import Mapping
from importlib import import_module
from types import CodeType, FrameType, MappingProxyType

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from turnkit_django.agents.agent import Agent
from turnkit_django.errors import ConfigError

_agents: dict[str, Agent] = {}
_makers: dict[str, CodeType | None] = {}
"""The run of a module that registered each: a reload runs another code object."""
_clashes: dict[str, str] = {}
_lock = threading.Lock()
_is_discovering = False


def register(agent: Agent) -> Agent:
    """Make `agent` known by its name, and return it.

    The same definition may be registered again: an equal fingerprint, or the same module and name (a reload). The
    newest object is kept.

    Raises:
        ConfigError: Another definition has the name.
    """
    if not isinstance(agent, Agent):
        raise ConfigError(f"expected an Agent, got {agent!r:.80} ({type(agent).__name__}); write register(Agent(...))")
    maker = _running_module(sys._getframe(1), agent.module)
    with _lock:
        known = _agents.get(agent.name)
        if known is not None and _is_another(known, agent, maker):
            message = _clash(known, agent)
            if not _is_discovering:
                raise ConfigError(message)
            _clashes[agent.name] = message
        _agents[agent.name], _makers[agent.name] = agent, maker
    for delegate in agent.delegates:  # a worker has to find them by name too
        register(delegate)
    return agent


def _is_another(known: Agent, agent: Agent, maker: CodeType | None) -> bool:
    if known.fingerprint == agent.fingerprint:
        return False
    return known.module != agent.module or (maker is not None and maker is _makers.get(agent.name))


def _clash(known: Agent, agent: Agent) -> str:
    where = f"in `{known.module}` and in `{agent.module}`"
    if known.module == agent.module:
        where = f"both in `{agent.module}`"
    return f"expected one definition of agent `{agent.name}`, got two: {where}; give one of them another name"


def _running_module(frame: FrameType | None, module: str) -> CodeType | None:
    """The code of `module` if it is being imported just now."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == module:
            return frame.f_code
        frame = frame.f_back
    return None


def discover() -> None:
    """Import the `agents` module of every installed app.

    A name that is defined twice raises nothing meanwhile, so that the modules stay importable: `clashes()` tells,
    `manage.py check` reports it, and `get_agent` refuses the name, so that nobody gets the wrong one of two.
    """
    global _is_discovering
    _is_discovering = True
    try:
        for app in apps.get_app_configs():
            if app.module is not None and module_has_submodule(app.module, "agents"):
                import_module(f"{app.name}.agents")
    finally:
        _is_discovering = False


def clashes() -> Mapping[str, str]:
    """What `discover` found defined twice: the message, by name."""
    return MappingProxyType(dict(_clashes))


def get_agent(name: str) -> Agent:
    """The agent registered as `name`.

    Raises:
        ConfigError: There is none, with near misses; or `discover` found two.
    """
    if name in _clashes:
        raise ConfigError(_clashes[name])
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
