"""The help desk in the browser: who sees what, and what a form does."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from example_project.helpdesk.forms import LONGEST_TEXT
from example_project.helpdesk.models import Customer, Ticket
from example_project.helpdesk.seed import ADA, GRACE
from example_project.helpdesk.tickets import open_ticket
from tests.concurrency.threads import Held
from tests.example.pages import PASSWORD, address, entries, key_of, open_by_form, word, write
from turnkit_django.models import Conversation, Turn
from turnkit_django.testing import ScriptedModel, assert_clean, text

Model = Callable[..., ScriptedModel]
PAGES = ["/tickets/", "/tickets/new/", "/tickets/1/", "/tickets/1/cancel/"]


@pytest.mark.parametrize("page", PAGES)
def test_a_stranger_is_sent_to_log_in_and_then_back(site: None, client: Client, page: str) -> None:
    response = client.get(page)
    assert response["Location"] == f"/login/?next={page}"

    done = client.post("/login/", {"username": ADA, "password": PASSWORD, "next": page})

    assert done["Location"] == page


def test_the_first_page_leads_to_the_tickets(ada: Client) -> None:
    assert ada.get("/")["Location"] == "/tickets/"
    assert "There are no tickets yet." in ada.get("/tickets/").text


def test_a_wrong_password_is_refused_in_words(site: None, client: Client) -> None:
    response = client.post("/login/", {"username": ADA, "password": "wrong"})

    assert "Please enter a correct username and password" in response.text
    assert "_auth_user_id" not in client.session


def test_logging_out_needs_a_form(ada: Client) -> None:
    assert ada.get("/logout/").status_code == 405
    assert ada.get("/tickets/").status_code == 200

    assert ada.post("/logout/")["Location"] == "/login/"
    assert ada.get("/tickets/").status_code == 302


def test_a_ticket_is_opened_answered_and_listed(ada: Client, turnkit_model: Model, turnkit_drain: Any) -> None:
    model = turnkit_model([text("It is on its way.")])
    ticket = open_by_form(ada, "Where is it?\r\nI wait.")
    assert ticket.text == "Where is it?\nI wait."

    waiting = ada.get(address(ticket)).text
    assert (entries(waiting), word(waiting)) == (["Where is it?\nI wait."], "waiting")
    turnkit_drain()
    answered = ada.get(address(ticket)).text

    assert (entries(answered), word(answered)) == (["Where is it?\nI wait.", "It is on its way."], "answered")
    assert word(ada.get("/tickets/").text) == "answered"
    assert_clean(ticket.conversation, model=model)


def test_a_form_that_is_sent_twice_opens_one_ticket(ada: Client) -> None:
    form = {"text": "Where is it?", "key": key_of(ada.get("/tickets/new/").text)}

    first, second = ada.post("/tickets/new/", form), ada.post("/tickets/new/", form)

    assert first["Location"] == second["Location"]
    assert (Ticket.objects.count(), Conversation.objects.count(), Turn.objects.count()) == (1, 1, 1)


@pytest.mark.django_db(transaction=True)
def test_a_double_click_opens_one_ticket(site: None) -> None:
    customer, key = Customer.objects.get(email=ADA), uuid4()
    first = Held(lambda: open_ticket(customer, "Where is it?", key=key))

    ticket, turn = first.and_behind_it(lambda: open_ticket(customer, "Where is it?", key=key)).result()

    assert (ticket, turn) == (Ticket.objects.get(), Turn.objects.get())
    assert Conversation.objects.count() == 1


def test_a_form_that_comes_back_with_another_text_is_shown_again(ada: Client) -> None:
    ticket = open_by_form(ada, "First.")
    used = str(ticket.key)

    page = ada.post("/tickets/new/", {"text": "Second.", "key": used}).text
    assert "This form was sent before, with another text" in page
    assert ">\nSecond.</textarea>" in page
    assert key_of(page) != used

    follow_up = ada.post(address(ticket), {"text": "Third.", "key": used}).text
    assert "This form was sent before, with another text" in follow_up
    assert Turn.objects.count() == 1


def test_a_key_of_one_customer_is_free_for_another(ada: Client, grace: Client) -> None:
    key = open_by_form(ada, "Mine.").key

    grace.post("/tickets/new/", {"text": "Grace's.", "key": str(key)})

    assert list(Ticket.objects.values_list("text", flat=True).order_by("pk")) == ["Mine.", "Grace's."]


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"text": " \n\t "}, "Please write something."),
        ({}, "Please write something."),
        ({"text": "x" * (LONGEST_TEXT + 1)}, "too long: please use at most 4000 characters, it has 4001"),
        ({"text": "x" * 1_000_000}, "too long: please use at most 4000 characters, it has 1000000"),
        ({"text": "a\x00b"}, "Null characters are not allowed"),
        ({"text": "Hello", "key": ""}, "Please send the form again."),
        ({"text": "Hello", "key": "' OR 1=1"}, "Please send the form again."),
    ],
)
def test_what_cannot_be_a_message_is_refused_in_words(ada: Client, sent: dict[str, str], said: str) -> None:
    ticket = open_by_form(ada, "First.")

    for page in ("/tickets/new/", address(ticket)):
        response = ada.post(page, {"key": str(uuid4())} | sent)
        assert response.status_code == 200
        assert said in response.text

    assert (Ticket.objects.count(), Turn.objects.count()) == (1, 1)


def test_the_longest_text_is_taken(ada: Client) -> None:
    assert open_by_form(ada, "x" * LONGEST_TEXT).text == "x" * LONGEST_TEXT


def test_more_than_the_server_reads_is_a_bad_request(ada: Client) -> None:
    response = ada.post("/tickets/new/", {"text": "x" * 5_000_000, "key": str(uuid4())})

    assert response.status_code == 400
    assert Ticket.objects.count() == 0


@pytest.mark.parametrize("page", ["", "news/0/", "cancel/"])
def test_a_ticket_of_somebody_else_is_like_one_that_is_not_there(ada: Client, grace: Client, page: str) -> None:
    ticket = open_by_form(ada, "Mine.")

    assert ada.get(address(ticket, page)).status_code == 200
    assert grace.get(address(ticket, page)).status_code == 404
    assert grace.post(address(ticket), {"text": "Hers?", "key": str(uuid4())}).status_code == 404
    assert grace.post(address(ticket, "cancel/")).status_code == 404
    assert "Mine." not in grace.get("/tickets/").text
    assert [turn.status for turn in Turn.objects.all()] == ["pending"]


def test_the_page_that_is_not_there_leads_on(ada: Client) -> None:
    response = ada.get("/tickets/99999999999999999999/")

    assert response.status_code == 404
    assert "There is no such page, or it is not yours." in response.text


def test_tickets_of_customers_without_a_login_are_nobodys(site: None, client: Client, staff: Client) -> None:
    Customer.objects.filter(email=GRACE).update(user=None)
    ticket, _ = open_ticket(Customer.objects.get(email=GRACE), "Hers.")

    assert client.get(address(ticket, "news/0/")).status_code == 404
    assert staff.get(address(ticket)).status_code == 200


def test_the_staff_reads_and_cancels_and_does_not_write(ada: Client, staff: Client) -> None:
    ticket = open_by_form(ada, "Mine.")

    assert "Mine." in staff.get("/tickets/").text
    page = staff.get(address(ticket)).text
    assert "Ada Lovelace" in page
    assert "<textarea" not in page
    assert staff.post(address(ticket), {"text": "Ours.", "key": str(uuid4())}).status_code == 403
    assert "belongs to none" in staff.get("/tickets/new/", follow=True).text
    staff.post(address(ticket, "cancel/"))
    assert Turn.objects.get().status == "cancelled"


def test_forms_without_their_token_are_refused(browser: Callable[..., Client]) -> None:
    ada = browser(ADA, enforce_csrf_checks=True)
    ticket, turn = open_ticket(Customer.objects.get(email=ADA), "Mine.")

    for page in ("/tickets/new/", address(ticket), address(ticket, "cancel/"), "/login/", "/logout/"):
        assert ada.post(page, {"text": "Forged.", "key": str(uuid4())}).status_code == 403

    assert list(Turn.objects.values_list("pk", "status")) == [(turn.pk, "pending")]
    assert ada.get("/tickets/").status_code == 200


@pytest.mark.parametrize("page", ["/tickets/", "/tickets/1/news/0/"])
def test_what_only_reads_takes_no_form(ada: Client, page: str) -> None:
    assert ada.post(page).status_code == 405


def test_pages_of_customers_are_kept_by_no_cache(ada: Client) -> None:
    ticket = open_by_form(ada, "Mine.")

    for page in ("/tickets/", "/tickets/new/", address(ticket), address(ticket, "news/0/")):
        assert "no-store" in ada.get(page)["Cache-Control"]


def test_long_lists_come_in_pages(ada: Client, django_assert_max_num_queries: Any) -> None:
    customer = Customer.objects.get(email=ADA)
    for number in range(45):
        open_ticket(customer, f"Number {number}.")

    with django_assert_max_num_queries(6):
        page = ada.get("/tickets/?page=2").text

    assert page.count('<li class="card">') == 20
    assert "Page 2 of 3" in page
    assert "Number 24." in page


def test_a_follow_up_is_answered_in_the_same_conversation(
    ada: Client, turnkit_model: Model, turnkit_drain: Any
) -> None:
    model = turnkit_model([text("Yes."), text("No.")])
    ticket = open_by_form(ada, "One?")
    turnkit_drain()

    key = uuid4()
    write(ada, ticket, "Two?", key=key)
    page = write(ada, ticket, "Two?", key=key)
    assert word(page) == "waiting"
    turnkit_drain()

    assert entries(ada.get(address(ticket)).text) == ["One?", "Yes.", "Two?", "No."]
    assert Turn.objects.filter(conversation=ticket.conversation).count() == 2
    assert_clean(ticket.conversation, model=model)
