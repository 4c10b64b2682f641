"""Another agent as a tool: the calling turn waits for its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from turnkit_django.core.content import shown
from turnkit_django.core.effects import Launch
from turnkit_django.core.requests import ToolSpec
from turnkit_django.errors import ConfigError, ToolError
from turnkit_django.tools.arguments import ValidArguments
from turnkit_django.tools.context import ToolContext
from turnkit_django.tools.tool import Tool

_T = TypeVar("_T", bound="SubAgentTool")


class Delegate(Protocol):
    """As much of an `Agent` as this layer knows."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...


class SubAgentTool(Tool):
    """A tool that gives a task to another agent. The model reads what that one answered, or why it failed.

    `SubAgentTool.for_agent(agent)` takes the task from the model. Subclass it to build the task in code, so that bulk
    data reaches the other agent and never the calling one: write `task_for` with annotated parameters and set `agent`.

        class Summarise(SubAgentTool):
            agent = summariser

            def task_for(self, report_id: int) -> str:
                return Report.objects.get(pk=report_id).body

    `task_for` may run again after a crash: it must do nothing that lasts. The other agent sees the task only, runs with
    its own model, tools and instructions, and acts for the principal of the calling turn.

    Attributes:
        agent: The `Agent` that does it.
    """

    agent: Delegate
    coordinates = True

    @classmethod
    def for_agent(cls: type[_T], agent: Delegate) -> _T:
        """A tool named after the agent, with one parameter `task`."""
        tool = cls()
        tool.agent = agent
        tool.name = tool.name or agent.name
        tool.description = tool.description or agent.description or f"Give a task to the agent {agent.name}."
        return tool

    def task_for(self, task: str) -> str:
        """Give it a task.

        Args:
            task: Everything the agent needs to know: it sees nothing else of this conversation.
        """
        return task

    def spec(self) -> ToolSpec:
        if not isinstance(getattr(getattr(self, "agent", None), "name", None), str):
            got = shown(getattr(self, "agent", None))
            raise ConfigError(f"`{type(self).__qualname__}`: expected `agent` to be the Agent that does it, got {got}")
        return super().spec()

    def invoke(self, arguments: ValidArguments, *, context: ToolContext) -> Launch:
        task = super().invoke(arguments, context=context)
        if not isinstance(task, str) or not task.strip():
            raise ToolError(f"expected `task_for` to return a text that is not blank, got {shown(task)}")
        return Launch(self.agent.name, task)

    def _body(self) -> Callable[..., object]:
        return self.task_for
