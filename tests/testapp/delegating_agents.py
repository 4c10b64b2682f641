"""An agent that gives tasks to others, each with a model of its own, so that a script can tell them apart."""

from turnkit_django import Agent, register, tool
from turnkit_django.tools import LaunchAgent, SendMessage, SubAgentTool, WaitFor

BOSS, WRITER, READER = "openai/gpt-5", "openai/gpt-5-mini", "openai/gpt-5-nano"


@tool(terminal=True)
def finish(words: str) -> dict[str, str]:
    """End the turn."""
    return {"result": words}


writer = register(Agent(name="writer", model=WRITER, description="Writes.", instructions="Write."))
reader = register(Agent(name="reader", model=READER, instructions="Read."))
hidden = Agent(name="hidden_reader", model=READER, instructions="Read what the boss must not see.")


class ReadReport(SubAgentTool):
    """Have a report read."""

    agent = hidden

    def task_for(self, report_id: int) -> str:
        """Have it read.

        Args:
            report_id: Which report.
        """
        return f"The report {report_id} says: {'bulk ' * 500}"


boss = register(
    Agent(
        name="boss",
        model=BOSS,
        tools=[finish, ReadReport, LaunchAgent, WaitFor, SendMessage],
        sub_agents=[writer, reader],
        version="7",
    )
)
