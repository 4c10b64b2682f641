"""The help desk's agent. turnkit_django finds this module by its name, as Django finds `admin`."""

from example_project.helpdesk.tools import add_note, list_orders, lookup_order, refund
from turnkit_django import Agent, register

helpdesk = register(
    Agent(
        name="helpdesk",
        description="Answers customers of a small shop about their orders.",
        instructions="""
You answer customers of a small shop for tableware.
Look an order up before you say anything about it. If the customer wants money back and gives a reason, refund the
order, in full unless they name an amount, then leave a note for the staff. Ask for the order number if it is missing;
list their orders if they do not know it.
Answer in a few friendly sentences, in the customer's language, and name the amount that you refunded.
""",
        tools=[lookup_order, list_orders, refund, add_note],
    )
)
