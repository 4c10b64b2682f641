"""The example's own tables in the admin."""

from collections.abc import Callable

import pytest
from django.test import Client

from example_project.helpdesk.models import Customer, Order, Refund, Ticket
from example_project.helpdesk.seed import ADA
from example_project.helpdesk.tickets import open_ticket
from turnkit_django.models import Conversation, Turn
from turnkit_django.testing import ScriptedModel, call, text

Model = Callable[..., ScriptedModel]
Drain = Callable[[], int]
TICKETS = "/admin/helpdesk/ticket/"
DELETE = {"action": "delete_selected", "post": "yes"}


@pytest.fixture
def ticket(site: None) -> Ticket:
    opened, _ = open_ticket(Customer.objects.get(email=ADA), "Please.")
    return opened


def test_a_ticket_leads_to_its_conversation(staff: Client, ticket: Ticket) -> None:
    page = staff.get(f"{TICKETS}{ticket.pk}/change/").text

    link = f"/admin/turnkit/conversation/{ticket.conversation_id}/change/"
    assert f'href="{link}"' in page
    assert staff.get(link).status_code == 200
    assert "waiting" in page


def test_tickets_are_found_by_customer_and_text(staff: Client, ticket: Ticket) -> None:
    for words in ("lovelace", ADA, "please"):
        assert "1 ticket" in staff.get(TICKETS, {"q": words}).text
    assert "0 tickets" in staff.get(TICKETS, {"q": "hopper"}).text


def test_a_ticket_at_work_is_not_deleted(staff: Client, ticket: Ticket) -> None:
    chosen = DELETE | {"_selected_action": [ticket.pk]}

    asked = staff.post(TICKETS, chosen | {"post": ""})
    assert "have permission to delete the following types of objects" in asked.text

    assert staff.post(f"{TICKETS}{ticket.pk}/delete/", {"post": "yes"}).status_code == 403
    assert staff.post(TICKETS, chosen).status_code == 403
    assert Ticket.objects.count() == 1


def test_a_ticket_that_has_ended_is_deleted_and_its_conversation_stays(staff: Client, ticket: Ticket) -> None:
    Turn.objects.get().cancel()

    done = staff.post(TICKETS, DELETE | {"_selected_action": [ticket.pk]}, follow=True)

    assert done.status_code == 200
    assert (Ticket.objects.count(), Conversation.objects.count()) == (0, 1)


def test_a_conversation_that_has_a_ticket_is_not_deleted_and_that_is_a_page(staff: Client, ticket: Ticket) -> None:
    response = staff.post(f"/admin/turnkit/conversation/{ticket.conversation_id}/delete/", {"post": "yes"})

    assert response.status_code in {200, 302, 403}
    assert Conversation.objects.count() == 1


def test_a_ticket_that_is_gone_stops_its_tools_quietly(
    site: None, ticket: Ticket, turnkit_model: Model, turnkit_drain: Drain
) -> None:
    turnkit_model([call("lookup_order", {"order_number": 1001}), text("Done.")])
    ticket.delete()

    turnkit_drain()

    assert Turn.objects.get().status == "completed"


@pytest.mark.parametrize("table", ["customer", "order", "refund", "ticket"])
def test_every_list_is_shown_and_searched(staff: Client, ticket: Ticket, table: str) -> None:
    order = Order.objects.first()
    Refund.objects.create(order=order, amount="1.00", reason="r", idempotency_key="k")

    assert staff.get(f"/admin/helpdesk/{table}/").status_code == 200
    assert staff.get(f"/admin/helpdesk/{table}/", {"q": "1001"}).status_code == 200


def test_refunds_are_only_read(staff: Client, site: None) -> None:
    refund = Refund.objects.create(order=Order.objects.first(), amount="1.00", reason="\u202e", idempotency_key="k")

    assert "[U+202E]" in staff.get(f"/admin/helpdesk/refund/{refund.pk}/change/").text
    assert staff.post(f"/admin/helpdesk/refund/{refund.pk}/delete/", {"post": "yes"}).status_code == 403
    assert staff.get("/admin/helpdesk/refund/add/").status_code == 403
