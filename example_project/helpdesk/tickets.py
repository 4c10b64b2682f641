"""What customers do with tickets."""

from __future__ import annotations

from uuid import UUID, uuid4

from django.db import IntegrityError, transaction

from example_project.helpdesk.agents import helpdesk
from example_project.helpdesk.models import Customer, Ticket
from turnkit_django.models import Turn


def open_ticket(customer: Customer, text: str, *, key: UUID | None = None) -> tuple[Ticket, Turn]:
    """Store what a customer wrote and hand it to the agent.

    The ticket and the agent's work commit together: there is never one without the other.

    Args:
        key: Of the form: the same form sent again gives the same ticket. None is a form that is sent once.

    Raises:
        StateError: If the form opened a ticket with another text.
    """
    key = key or uuid4()
    try:
        with transaction.atomic():
            conversation = helpdesk.conversation(subject=customer)
            ticket = Ticket.objects.create(customer=customer, conversation=conversation, text=text, key=key)
            return ticket, conversation.submit(text, key=str(key))
    except IntegrityError:
        # A double click: the other request was first.
        ticket = Ticket.objects.get(customer=customer, key=key)
        return ticket, ticket.conversation.submit(text, key=str(key))


def current_turn(ticket: Ticket) -> Turn | None:
    """The turn that is worked on or comes next; without one the last that ended."""
    turns = Turn.objects.filter(conversation=ticket.conversation_id).submitted()
    return turns.placed().order_by("lane_position").first() or turns.order_by("-lane_position").first()


def cancel_work(ticket: Ticket) -> int:
    """Cancel all that is open; how many turns that were."""
    turns = Turn.objects.filter(conversation=ticket.conversation_id).placed()
    # The last one first: a worker would begin with the next as soon as the first has ended.
    ended = [turn.cancel() for turn in turns.order_by("-lane_position")]
    return sum(turn.status == Turn.Status.CANCELLED for turn in ended)
