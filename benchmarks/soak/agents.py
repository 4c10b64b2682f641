"""Agents three levels deep, with a tool of each recovery that leaves marks of what it does."""

import threading

from benchmarks.soak.models import Mark
from turnkit_django import Agent, ToolContext, register, tool
from turnkit_django.tools import LaunchAgent, SendMessage, WaitFor

BODY_SECONDS = 0.02
"""On either side of the effect, so that a kill falls there now and then."""


def _work(name: str, n: int, key: str, *, is_repeatable: bool) -> dict[str, int]:
    Mark.objects.create(kind=Mark.Kind.BEGUN, tool=name, key=key, n=n)
    threading.Event().wait(BODY_SECONDS)
    effects = Mark.objects.filter(kind=Mark.Kind.EFFECT, tool=name, key=key)
    if not (is_repeatable and effects.exists()):
        Mark.objects.create(kind=Mark.Kind.EFFECT, tool=name, key=key, n=n)
    threading.Event().wait(BODY_SECONDS)
    return {"n": n}


@tool(recovery="replay_safe")
def safe(n: int, *, context: ToolContext) -> dict[str, int]:
    """Take effect once for each key."""
    return _work("safe", n, context.idempotency_key, is_repeatable=True)


@tool
def unsafe(n: int, *, context: ToolContext) -> dict[str, int]:
    """Take effect each time."""
    return _work("unsafe", n, context.idempotency_key, is_repeatable=False)


_MODEL = "openai/gpt-5-mini"
runner = register(Agent(name="soak_runner", model=_MODEL, instructions="Run.", tools=[safe, unsafe]))
clerk = register(
    Agent(name="soak_clerk", model=_MODEL, instructions="Work.", tools=[safe, unsafe], sub_agents=[runner])
)
boss = register(
    Agent(
        name="soak_boss",
        model=_MODEL,
        instructions="Delegate.",
        tools=[safe, unsafe, LaunchAgent, WaitFor, SendMessage],
        sub_agents=[clerk],
    )
)
