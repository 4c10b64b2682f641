from django.db import transaction

from example_project.helpdesk.agents import helpdesk
from example_project.helpdesk.models import Customer, Ticket
from turnkit_django.models import Turn


def open_ticket(customer: Customer, text: str) -> tuple[Ticket, Turn]:
    """Store what a customer wrote and hand it to the agent.

    The ticket and the agent's work commit together: there is never one without the other.
    """
    with transaction.atomic():
        conversation = helpdesk.conversation(subject=customer)
        ticket = Ticket.objects.create(customer=customer, conversation=conversation, text=text)
        turn: Turn = conversation.submit(text)
    return ticket, turn
