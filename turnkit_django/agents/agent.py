"""The declaration of an agent: a value that is checked when it is built and never changes."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import EllipsisType, FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from turnkit_django.agents.options import Options
from turnkit_django.core.content import Json, shown
from turnkit_django.core.events import OnEvent
from turnkit_django.core.requests import ToolSpec
from turnkit_django.errors import ConfigError
from turnkit_django.tools.builtin import SubAgentTool
from turnkit_django.tools.tool import Tool

if TYPE_CHECKING:
    from django.db.models import Model

    from turnkit_django.clients.base import ModelClient
    from turnkit_django.models import Conversation, Turn
    from turnkit_django.runs import Run

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class Agent:
    """What a turn runs: instructions, a model, tools and limits. All arguments are given by name.

    Immutable. Two agents are equal only if they are the same object; compare `fingerprint` to see whether two
    definitions agree.

    Args:
        name: Letters, digits and `_`, not starting with a digit; at most 64. Stored on every turn.
        version: Your own marker, stored on every turn.
        description: What the agent is for.
        model: A litellm model string; None: the setting `DEFAULT_MODEL`.
        instructions: The system prompt; white space around it is removed.
        tools: Tools made by `@tool`, `Tool` classes or instances; at most 128, each name once.
        sub_agents: Agents it may give tasks to: each becomes a tool of that name.
        max_iterations: Model calls of a turn; 0 allows none; None: the setting `MAX_ITERATIONS`.
        max_depth: How deep agents may call agents under a turn of this one; 0 allows none; None: the setting
            `MAX_DEPTH`. A child keeps the limit of its root turn.
        timeout: Wall time of a turn, in seconds or as a timedelta, more than 0; None: the setting `TIMEOUT`.
        max_output_tokens: Of one model call; None: the setting `MAX_OUTPUT_TOKENS`.
        thinking: `{"effort": "low" | "medium" | "high"}` and/or `{"budget": tokens}`; None: the model's default.
        client: What calls the model; None: the setting `CLIENT`.
        on_event: Called with each event of its turns and conversations, or a list of such; see `docs/events.md`.

    Raises:
        ConfigError: Names the agent, what was expected, what came and what to do.
    """

    name: str
    version: str
    description: str
    model: str | None
    instructions: str
    tools: tuple[Tool, ...]
    """Those given, then one for each of `sub_agents`."""
    sub_agents: tuple[Agent, ...]
    max_iterations: int | None
    max_depth: int | None
    timeout: timedelta | None
    max_output_tokens: int | None
    thinking: Mapping[str, Json] | None
    client: ModelClient | None
    on_event: tuple[OnEvent, ...]
    module: str
    """Where the agent was built; tells a reloaded module from a second definition."""

    def __init__(
        self,
        *,
        name: str,
        version: str = "1",
        description: str = "",
        model: str | None = None,
        instructions: str = "",
        tools: Sequence[Tool | type[Tool]] = (),
        sub_agents: Sequence[Agent] = (),
        max_iterations: int | None = None,
        max_depth: int | None = None,
        timeout: timedelta | int | None = None,
        max_output_tokens: int | None = None,
        thinking: Mapping[str, object] | None = None,
        client: ModelClient | None = None,
        on_event: OnEvent | Sequence[OnEvent] | None = None,
    ) -> None:
        _check_name(name)
        check = Options(name)
        vars(self).update(
            name=name,
            version=check.text("version", version, may_be_empty=False),
            description=check.text("description", description),
            model=None if model is None else check.text("model", model, may_be_empty=False),
            instructions=check.text("instructions", instructions).strip(),
            tools=check.tools(tools, delegates=_agents(check, sub_agents)),
            sub_agents=_agents(check, sub_agents),
            max_iterations=check.number("max_iterations", max_iterations, least=0),
            max_depth=check.number("max_depth", max_depth, least=0),
            timeout=check.duration("timeout", timeout),
            max_output_tokens=check.number("max_output_tokens", max_output_tokens, least=1),
            thinking=check.thinking(thinking),
            client=check.client(client),
            on_event=check.on_event(on_event),
            module=_module_of_caller(sys._getframe(1), self),
        )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"agent `{self.name}` is immutable: build another one instead of setting `{name}`")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"agent `{self.name}` is immutable: `{name}` cannot be deleted")

    def __repr__(self) -> str:
        return f"<Agent {self.name} version {self.version}>"

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that shapes a turn, as 64 hex digits; the same in every process.

        `client` and `on_event` are left out: how a model is reached and who listens. So is the code of the tools.
        """
        parts = {
            "name": self.name,
            "version": self.version,
            "description": self.description,
            "model": self.model,
            "instructions": self.instructions,
            "tools": [_tool_parts(each) for each in self.tools],
            "max_iterations": self.max_iterations,
            "max_depth": self.max_depth,
            "timeout": None if self.timeout is None else self.timeout.total_seconds(),
            "max_output_tokens": self.max_output_tokens,
            "thinking": None if self.thinking is None else dict(self.thinking),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    @property
    def delegates(self) -> tuple[Agent, ...]:
        """The agents that its tools give tasks to, each once."""
        found = [tool.agent for tool in self.tools if isinstance(tool, SubAgentTool)]
        return tuple(dict.fromkeys(each for each in found if isinstance(each, Agent)))

    def tool_named(self, name: str) -> Tool | None:
        """The tool that the model calls `name`, or None."""
        return self._tools_by_name.get(name)

    @property
    def tool_names(self) -> tuple[str, ...]:
        return tuple(self._tools_by_name)

    def tool_specs(self) -> tuple[ToolSpec, ...]:
        """The tools as the model sees them, in the order given."""
        return tuple(each.spec() for each in self.tools)

    @functools.cached_property
    def _tools_by_name(self) -> dict[str, Tool]:
        return {each.spec().name: each for each in self.tools}

    def conversation(
        self,
        *,
        subject: Model | None = None,
        model: str | None = None,
        metadata: Mapping[str, Json] | None = None,
        context: Mapping[str, Json] | None = None,
        principal: Json = None,
    ) -> Conversation:
        """A new, saved `Conversation` with this agent.

        Args:
            subject: A saved model instance it is about; kept as type (`app_label.model`) and key.
            model: Instead of the agent's, in all its turns.
            metadata: The application's own facts, a JSON object.
            context: Default run context of its turns, for tools, a JSON object.
            principal: Identity under which its turns act; any JSON.

        Raises:
            InputError: If an argument cannot be used; it names the argument. Nothing was written.
        """
        from turnkit_django import conversations

        return conversations.open_conversation(
            self, subject=subject, model=model, metadata=metadata, context=context, principal=principal
        )

    def prepare(
        self,
        task: str,
        *,
        input: object = None,
        parent: Run | Turn | None = None,
        subject: Model | None = None,
        metadata: Mapping[str, Json] | None = None,
        context: Mapping[str, Json] | None = None,
        principal: Json = None,
        model: str | None = None,
        thinking: Mapping[str, Json] | EllipsisType | None = ...,
        on_event: OnEvent | None = None,
    ) -> Run:
        """A `Run` of `task`, a user's message, in a conversation of its own: pending, nothing called.

        Args:
            input: JSON that stands below the task; a text stands there as it is.
            parent: A run or turn whose tree the new turn joins: its deadline counts, and its run sums the new turn too.
            subject: As in `conversation`; so are `metadata`, `context` and `principal`.
            model: Instead of the agent's; so is `thinking`, where None switches it off and `...` leaves it.
            on_event: Called with the turn's events that happen in this process while the run is held.

        Raises:
            InputError: If the task is blank or an argument cannot be used. Nothing was written.
            ConfigError: If the agent is not registered: a worker could not find it.
        """
        from turnkit_django import conversations

        return conversations.prepare_run(
            self,
            task,
            input=input,
            parent=parent,
            subject=subject,
            metadata=metadata,
            context=context,
            principal=principal,
            **_given(model=model, thinking=thinking, on_event=on_event),
        )

    def run(
        self,
        task: str,
        *,
        input: object = None,
        parent: Run | Turn | None = None,
        subject: Model | None = None,
        metadata: Mapping[str, Json] | None = None,
        context: Mapping[str, Json] | None = None,
        principal: Json = None,
        model: str | None = None,
        thinking: Mapping[str, Json] | EllipsisType | None = ...,
        on_event: OnEvent | None = None,
    ) -> Run:
        """The `Run` of `task`, executed in this process and ended. Arguments as in `prepare`.

        A turn that failed is no exception: `status` and `error` of the run tell.

        Raises:
            InputError: As in `prepare`.
            ConfigError: As in `prepare`.
            StateError: If called inside the application's own transaction.
        """
        from turnkit_django import conversations

        return conversations.run(
            self,
            task,
            input=input,
            parent=parent,
            subject=subject,
            metadata=metadata,
            context=context,
            principal=principal,
            **_given(model=model, thinking=thinking, on_event=on_event),
        )

    def submit(
        self,
        task: str,
        *,
        input: object = None,
        parent: Run | Turn | None = None,
        subject: Model | None = None,
        metadata: Mapping[str, Json] | None = None,
        context: Mapping[str, Json] | None = None,
        principal: Json = None,
        model: str | None = None,
        thinking: Mapping[str, Json] | EllipsisType | None = ...,
        callback: Conversation | None = None,
    ) -> Run:
        """The `Run` of `task`, handed to a worker: durable. Arguments as in `prepare`, without `on_event`.

        Args:
            callback: A saved conversation that is told of the end.

        Raises:
            InputError: As in `prepare`, or the callback is no saved conversation.
            ConfigError: As in `prepare`.
        """
        from turnkit_django import conversations

        return conversations.submit_run(
            self,
            task,
            input=input,
            parent=parent,
            subject=subject,
            metadata=metadata,
            context=context,
            principal=principal,
            callback=callback,
            **_given(model=model, thinking=thinking),
        )


def _given(**options: object) -> dict[str, Any]:
    """The options that were given; None is a value of its own."""
    return {name: value for name, value in options.items() if value is not ...}


def _agents(check: Options, entries: object) -> tuple[Agent, ...]:
    if not isinstance(entries, list | tuple) or not all(isinstance(entry, Agent) for entry in entries):
        raise check.wrong("sub_agents", "a list of agents", entries)
    return tuple(entries)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        expected = "1 to 64 letters, digits or `_`, not starting with a digit"
        raise ConfigError(f"Agent(name={shown(name, longest=120)}): expected {expected}")


def _module_of_caller(frame: FrameType | None, agent: Agent) -> str:
    """The module that built `agent`, seen past the constructors of subclasses."""
    while frame is not None and frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is agent:
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))


def _tool_parts(tool: Tool) -> dict[str, object]:
    spec = tool.spec()
    return {
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters,
        "terminal": tool.terminal,
        "recovery": tool.recovery,
    }
