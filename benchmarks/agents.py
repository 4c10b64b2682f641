"""The agent of the measured turn. Its tool may be repeated, as a step of DBOS is after a crash."""

from benchmarks import job
from turnkit_django import Agent, register, tool

agent = register(
    Agent(
        name="bench",
        model="openai/gpt-5-mini",
        instructions="Help.",
        tools=[tool(recovery="replay_safe")(job.look_up)],
    )
)
