from turnkit_django import Agent, ToolContext, register, tool


@tool(recovery="replay_safe")
def lookup_order(number: int, *, context: ToolContext) -> dict[str, object]:
    """Look up an order."""
    return {"number": number, "status": "shipped"}


support = register(Agent(name="support", model="openai/gpt-5-mini", tools=[lookup_order]))
