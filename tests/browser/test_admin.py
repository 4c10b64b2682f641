"""The admin as an operator sees it: find a turn, read its page, cancel."""

from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from tests.browser.conftest import serious_findings
from tests.testapp.agents import helper
from turnkit_django.models import Turn
from turnkit_django.testing import call, drain, scripted_model, text

HOSTILE = "<script>alert(1)</script> <a href='javascript:alert(2)'>x</a> \u202egnp.exe " + "long " * 200


@pytest.fixture
def admin(live_server: LiveServer) -> str:
    User.objects.create_superuser("root", password="x")
    return f"{live_server.url}/admin/turnkit"


@pytest.fixture
def operator(admin: str, open_page: Callable[..., Page]) -> Callable[..., Page]:
    """A page that is logged in."""

    def operator(**options: bool | int) -> Page:
        page = open_page(**options)
        client = Client()
        client.force_login(User.objects.get(username="root"))
        cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
        page.context.add_cookies(
            [{"name": settings.SESSION_COOKIE_NAME, "value": cookie, "url": f"http://{urlsplit(admin).netloc}"}]
        )
        return page

    return operator


def ended_turn(question: str = "Please do 3.", answer: str = "Done: 3.", tool: str = "safe", n: object = 3) -> Turn:
    with scripted_model([call(tool, {"n": n}), text(answer)]):
        turn = helper.conversation().submit(question)
        drain()
    turn.refresh_from_db()
    assert turn.status == Turn.Status.COMPLETED
    return turn


def test_an_operator_finds_a_turn_and_reads_what_happened(
    admin: str, operator: Callable[..., Page], screenshot: Callable[[Page, str], None]
):
    turn = ended_turn()
    page = operator()
    page.goto(f"{admin}/turn/")
    assert serious_findings(page) == []
    screenshot(page, "admin turns")
    page.locator("#searchbar").fill(turn.pk)
    page.keyboard.press("Enter")
    page.get_by_role("link", name=turn.pk).click()
    timeline = page.locator("#turnkit-steps").locator("..")
    expect(timeline).to_contain_text("Please do 3.")
    expect(timeline).to_contain_text("safe")
    expect(timeline).to_contain_text("Done: 3.")
    expect(page.locator(".turnkit-why")).to_contain_text("completed")
    arguments = page.locator("details").filter(has_text="rguments").first
    assert not arguments.evaluate("each => each.open")
    arguments.locator("summary").focus()
    page.keyboard.press("Enter")
    assert arguments.evaluate("each => each.open")
    assert serious_findings(page) == []
    screenshot(page, "admin turn")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_an_operator_cancels_a_turn_from_its_page(
    dark: bool, scripts: bool, admin: str, operator: Callable[..., Page], screenshot: Callable[[Page, str], None]
):
    turn = helper.conversation().submit("Please do 3.")
    page = operator(dark=dark, scripts=scripts)
    page.goto(f"{admin}/turn/{turn.pk}/change/")
    page.get_by_role("link", name="Cancel this turn").click()
    if scripts:
        assert serious_findings(page) == []
        screenshot(page, f"admin cancel {'dark' if dark else 'light'}")
    page.get_by_role("button", name="Yes, cancel 1 turn").click()
    expect(page.locator(".messagelist")).to_have_text("1 cancelled.")
    turn.refresh_from_db()
    assert turn.status == Turn.Status.CANCELLED
    if scripts:
        assert serious_findings(page) == []
        screenshot(page, f"admin cancelled {'dark' if dark else 'light'}")
    page.get_by_role("link", name="History", exact=True).click()
    expect(page.locator("#change-history")).to_contain_text("Cancelled in the admin.")


def test_the_action_of_the_list_tells_what_it_found(
    admin: str, operator: Callable[..., Page], screenshot: Callable[[Page, str], None]
):
    ended_turn()
    for _ in range(3):
        helper.conversation().submit("Please do 3.")
    page = operator(width=390)
    page.goto(f"{admin}/turn/?status=pending")
    assert serious_findings(page) == []
    page.goto(f"{admin}/turn/")
    page.locator("#action-toggle").check()
    page.get_by_label("Action:").select_option("cancel_selected")
    page.get_by_role("button", name="Go", exact=True).or_(page.get_by_role("button", name="Run", exact=True)).click()
    expect(page.locator("#content")).to_contain_text("1 of them has ended already")
    page.get_by_role("button", name="Yes, cancel 3 turns").click()
    expect(page.locator(".messagelist")).to_have_text("3 cancelled, 1 was already finished.")
    screenshot(page, "admin list cancelled")


@pytest.mark.parametrize("kind", ["conversation", "turn", "message", "toolexecution"])
def test_hostile_content_runs_nothing_and_hides_nothing(
    kind: str, admin: str, operator: Callable[..., Page], screenshot: Callable[[Page, str], None]
):
    turn = ended_turn(HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    page = operator(dark=True)
    page.goto(f"{admin}/{kind}/")
    page.locator("#result_list th a").first.click()
    expect(page.locator("#content")).to_contain_text(turn.pk)
    assert page.locator("#content a[href^='javascript:'], #content script").count() == 0
    assert "\u202e" not in page.content()
    expect(page.locator("#content")).to_contain_text("[U+202E]")
    assert serious_findings(page) == []
    screenshot(page, f"admin hostile {kind}")
