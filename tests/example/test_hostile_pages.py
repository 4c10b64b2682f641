"""Whatever customers, models and tools write: pages show it as text."""

import re
from collections.abc import Callable

import pytest
from django.test import Client

from example_project.helpdesk.models import Customer, Ticket
from example_project.helpdesk.seed import ADA
from example_project.helpdesk.tickets import open_ticket
from tests.example.pages import address, open_by_form
from turnkit_django.testing import ScriptedModel, call, text

Model = Callable[..., ScriptedModel]
Drain = Callable[[], int]

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(1)>\"'`</p></ol></textarea>"
    '<div hx-get="/admin/" hx-trigger="load"></div>{{ settings.SECRET_KEY }}{% csrf_token %}'
    "javascript:alert(1) https://evil.example/\n[click](javascript:alert(1))"
)
BIDI = "invoice\u202efdp.exe \u2066x\u2069 \u200b\U000e0041"
ADMIN = ["/admin/helpdesk/ticket/", "/admin/helpdesk/ticket/{}/change/"]
CUSTOMERS = "/admin/helpdesk/customer/"


def harm_in(page: str) -> list[str]:
    """Markup that came out of the text: our pages hold none of this themselves."""
    found = re.findall(r"<img[^>]*onerror|<script>alert|<div hx-get=./admin/|<a [^>]*(?:javascript:|evil)", page)
    return found + [sign for sign in "\u202e\u2066\u2069\u200b\U000e0041" if sign in page]


@pytest.fixture
def ticket(ada: Client, turnkit_model: Model, turnkit_drain: Drain) -> Ticket:
    """A ticket in which everybody wrote the worst."""
    worst = HOSTILE + BIDI
    Customer.objects.filter(email=ADA).update(name=(BIDI + worst)[:200])
    turnkit_model(
        [
            call("lookup_order", {"order_number": worst}),
            call(worst, {worst: worst}),
            call("add_note", {"text": worst}),
            text(worst),
        ]
    )
    opened = open_by_form(ada, worst)
    turnkit_drain()
    return opened


@pytest.mark.parametrize("page", ["/tickets/", "/tickets/{}/", "/tickets/{}/news/0/", *ADMIN, CUSTOMERS])
def test_markup_links_and_hidden_letters_do_no_harm(staff: Client, ticket: Ticket, page: str) -> None:
    shown = staff.get(page.format(ticket.pk))

    assert shown.status_code == 200
    assert harm_in(shown.text) == []
    assert "&lt;script&gt;alert(1)" in shown.text


def test_hidden_letters_are_written_out(ada: Client, ticket: Ticket) -> None:
    assert "invoice[U+202E]fdp.exe" in ada.get(address(ticket)).text


def test_a_form_that_comes_back_holds_what_was_written_as_text(ada: Client) -> None:
    page = ada.post("/tickets/new/", {"text": HOSTILE, "key": ""}).text

    assert harm_in(page) == []
    assert "&lt;/textarea&gt;" in page


def test_a_message_of_five_megabytes_is_cut_and_says_so(
    staff: Client, turnkit_model: Model, turnkit_drain: Drain
) -> None:
    turnkit_model([text("<b>" * 1_700_000)])
    ticket, _ = open_ticket(Customer.objects.get(email=ADA), "\u202e" * 5_000_000)
    turnkit_drain()

    for page in ("/tickets/", address(ticket), address(ticket, "news/0/"), *ADMIN):
        shown = staff.get(page.format(ticket.pk)).text
        assert len(shown) < 600_000
        assert "of 5,000,000 characters]" in shown
