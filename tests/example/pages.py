"""What tests do with the pages of the help desk."""

import re
from html import unescape
from uuid import uuid4

from django.test import Client
from pytest_django import Settings

from example_project.helpdesk.models import Ticket
from example_project.helpdesk.seed import seed, seed_logins

PASSWORD = "of all logins"


def open_site(settings: Settings) -> None:
    """The example's pages, its customers and their logins."""
    settings.ROOT_URLCONF = "example_project.urls"
    settings.LOGIN_URL = "helpdesk:login"
    settings.LOGIN_REDIRECT_URL = "helpdesk:tickets"
    settings.LOGOUT_REDIRECT_URL = "helpdesk:login"
    seed()
    seed_logins(PASSWORD)


def open_by_form(client: Client, text: str) -> Ticket:
    """Open a ticket as a browser does."""
    response = client.post("/tickets/new/", {"text": text, "key": key_of(client.get("/tickets/new/").text)})
    assert response.status_code == 302, response.text
    return Ticket.objects.get(pk=int(response["Location"].split("/")[2]))


def write(client: Client, ticket: Ticket, text: str, *, key: object = None) -> str:
    """Write again on the ticket; the page that follows."""
    return client.post(address(ticket), {"text": text, "key": str(key or uuid4())}, follow=True).text


def address(ticket: Ticket, rest: str = "") -> str:
    return f"/tickets/{ticket.pk}/{rest}"


def key_of(page: str) -> str:
    found = re.search(r'name="key" value="([^"]+)"', page)
    assert found, page
    return found[1]


def poll_of(page: str) -> str | None:
    """The address that the page asks for news; None if it asks no more."""
    found = re.search(r'hx-get="([^"]+)" hx-trigger="every', page)
    return unescape(found[1]) if found else None


def entries(page: str) -> list[str]:
    """The lines of the thread, as text."""
    lines = re.findall(r'<(?:p class="text" dir="auto"|span class="step-text")>(?:<bdi>)?(.*?)<', page, re.DOTALL)
    return [unescape(line) for line in lines]


def word(page: str) -> str:
    found = re.search(r'<span class="word \w+">(\w+)</span>', page)
    assert found, page
    return found[1]
