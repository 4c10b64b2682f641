"""Nothing is deleted in the admin: asking for it is answered by a page (case B65)."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from example_project.helpdesk.models import Customer, Ticket
from tests.admin.rows import KINDS, conversation, family
from tests.testapp.agents import helper
from turnkit_django.engine import runner
from turnkit_django.models import Conversation, Turn
from turnkit_django.store import transitions

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_delete_page_refuses(admin_client: Client, kind: str):
    row = family()[kind]
    url = f"/admin/turnkit/{kind}/{row.pk}/delete/"

    for response in (admin_client.get(url), admin_client.post(url, {"post": "yes"})):
        assert response.status_code == 403
        assert b"Nothing was deleted." in response.content
    assert type(row).objects.filter(pk=row.pk).exists()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("more", [{"index": "0"}, {"post": "yes"}, {"index": "0", "select_across": "1"}])
def test_the_delete_action_refuses(admin_client: Client, kind: str, more: dict[str, str]):
    row = family()[kind]
    count = type(row).objects.count()
    asked = {"action": "delete_selected", "_selected_action": [row.pk], **more}

    response = admin_client.post(f"/admin/turnkit/{kind}/", asked)

    assert response.status_code == 403
    assert b"Nothing was deleted." in response.content
    assert type(row).objects.count() == count


def test_a_running_turn_runs_on_when_somebody_asks_for_its_deletion(admin_client: Client):
    helper.conversation().submit("please")
    (one,) = transitions.claim(runner.holder())

    for kind, key in (("turn", one.claim.turn_id), ("conversation", one.claim.conversation_id)):
        assert admin_client.post(f"/admin/turnkit/{kind}/{key}/delete/", {"post": "yes"}).status_code == 403

    assert Turn.objects.get().claim_token == one.claim.token


@pytest.mark.parametrize("answer", [{}, {"post": "yes"}])
def test_deleting_what_points_at_a_conversation_stays_a_page(admin_client: Client, answer: dict[str, str]):
    lane = conversation()
    customer = Customer.objects.create(name="Ann", email="ann@shop.example")
    ticket = Ticket.objects.create(customer=customer, conversation=lane, text="help")

    for url in (f"/admin/helpdesk/customer/{customer.pk}/delete/", f"/admin/helpdesk/ticket/{ticket.pk}/delete/"):
        assert admin_client.post(url, answer).status_code in {200, 302, 403}
    other = User.objects.create_user("other")
    assert admin_client.post(f"/admin/auth/user/{other.pk}/delete/", answer).status_code in {200, 302}

    assert Conversation.objects.filter(pk=lane.pk).exists()
