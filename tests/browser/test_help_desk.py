"""The help desk as a customer sees it: log in, open a ticket, follow the answer, cancel."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from example_project.script import help_desk
from tests.browser.conftest import serious_findings
from tests.example.pages import PASSWORD, open_site
from turnkit_django.models import Turn
from turnkit_django.testing import assert_clean, drain, scripted_model

HOSTILE = "<img src=x onerror=alert(1)> [click](javascript:alert(2)) invoice\u202efdp.exe of order 1002"


@pytest.fixture
def site(settings: Settings, live_server: LiveServer) -> Iterator[str]:
    open_site(settings)
    with scripted_model(help_desk):
        yield live_server.url


def log_in(page: Page, site: str, name: str = "ada@example.com") -> None:
    page.goto(site)
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Your tickets")


def open_ticket(page: Page, text: str) -> None:
    page.get_by_role("link", name="New ticket").click()
    page.get_by_label("message").fill(text)
    page.get_by_role("button", name="Open the ticket").click()
    expect(page.locator("#state")).to_contain_text("waiting")


def test_a_customer_logs_in_opens_a_ticket_and_sees_the_answer_come(
    site: str, open_page: Callable[..., Page], screenshot: Callable[[Page, str], None]
):
    page = open_page()
    log_in(page, site)
    open_ticket(page, "Where is my order 1002?")
    assert serious_findings(page) == []
    screenshot(page, "help desk waiting")

    drain()

    expect(page.locator("#thread")).to_contain_text("set of six cups, is shipped")
    expect(page.locator("#state")).to_contain_text("answered")
    assert page.locator("#state").get_attribute("hx-get") is None  # it asks no more
    assert serious_findings(page) == []
    screenshot(page, "help desk answered")
    assert_clean()


def test_a_customer_cancels_and_is_told_so(
    site: str, open_page: Callable[..., Page], screenshot: Callable[[Page, str], None]
):
    page = open_page(dark=True, width=390)
    log_in(page, site)
    open_ticket(page, "The blue teapot of order 1001 broke. I want my money back.")
    page.get_by_role("link", name="Cancel", exact=True).click()
    assert serious_findings(page) == []
    screenshot(page, "help desk cancel dark small")

    page.get_by_role("button", name="Cancel the work").click()

    expect(page.get_by_role("status").first).to_contain_text("was cancelled")
    expect(page.locator("#state")).to_contain_text("cancelled")
    assert serious_findings(page) == []
    screenshot(page, "help desk cancelled dark small")
    assert [turn.status for turn in Turn.objects.all()] == [Turn.Status.CANCELLED]


def test_all_of_it_works_without_scripts(site: str, open_page: Callable[..., Page]):
    page = open_page(scripts=False)
    log_in(page, site)
    open_ticket(page, "Where is my order 1003?")
    drain()
    page.get_by_role("link", name="Look for news").click()
    expect(page.locator("#thread")).to_contain_text("oak tray, is paid")


def test_what_a_customer_writes_is_shown_as_text_and_runs_nothing(
    site: str, open_page: Callable[..., Page], screenshot: Callable[[Page, str], None]
):
    page = open_page()
    log_in(page, site)
    open_ticket(page, HOSTILE)
    drain()
    expect(page.locator("#state")).to_contain_text("answered")
    expect(page.locator("#thread")).to_contain_text("<img src=x onerror=alert(1)>")
    expect(page.locator("#thread")).to_contain_text("invoice[U+202E]fdp.exe")
    assert page.locator("main img, main a[href^='javascript:']").count() == 0
    screenshot(page, "help desk hostile")


def test_pages_can_be_used_with_the_keyboard_alone(site: str, open_page: Callable[..., Page]):
    page = open_page()
    log_in(page, site)
    page.get_by_role("link", name="New ticket").focus()
    page.keyboard.press("Enter")
    page.get_by_label("message").focus()
    page.keyboard.type("Where is my order 1001?")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Open the ticket"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.keyboard.press("Enter")
    expect(page.locator("#state")).to_contain_text("waiting")
