from shop.models import Order
from turnkit_django import Agent, ToolContext, errors, register, tool


@tool(recovery="replay_safe")
def lookup_order(number: int, *, context: ToolContext) -> dict[str, object]:
    """Look up an order."""
    order = Order.objects.filter(number=number).first()
    if order is None:
        raise errors.ToolError(f"There is no order {number}.")
    return {"number": order.number, "status": order.status}


support = register(Agent(name="support", model="openai/gpt-5-mini", tools=[lookup_order]))
