"""Agents of the tests, with tools that are told how to behave by their arguments."""

from tests.testapp import delegating_agents, fault_agents, hostile_tools  # noqa: F401  they register their agents
from tests.testapp.models import Effect
from turnkit_django import Agent, ToolContext, register, tool


@tool(recovery="replay_safe")
def safe(n: int = 0, *, context: ToolContext) -> dict[str, object]:
    """Note an effect once for each key; may be repeated."""
    Effect.objects.get_or_create(key=context.idempotency_key, defaults={"name": "safe", "n": n})
    return {"n": n}


@tool
def unsafe(n: int = 0, *, context: ToolContext) -> dict[str, object]:
    """Note an effect each time."""
    Effect.objects.create(key=context.execution.pk, name="unsafe", n=n)
    return {"n": n}


helper = register(Agent(name="helper", model="openai/gpt-5-mini", instructions="Help.", tools=[safe, unsafe]))
