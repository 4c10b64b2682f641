"""Debian's Chromium, driven by Playwright, against Django's live server.

Without a Chromium these tests are skipped and say so; with TURNKIT_REQUIRE_CHROMIUM, as in CI, that is a failure.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Response, sync_playwright

SCREENSHOTS = Path(__file__).parent.parent.parent / "build" / "screenshots"
# Without these it looks up its maker's hosts at every start.
_QUIET = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",
]
_SERIOUS = {"serious", "critical"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        if os.environ.get("TURNKIT_REQUIRE_CHROMIUM"):
            pytest.fail("no Chromium was found; install Debian's package `chromium` or name it in CHROMIUM")
        pytest.skip("no Chromium: install Debian's package `chromium` or name it in CHROMIUM")
    with sync_playwright() as playwright, pytest.MonkeyPatch.context() as environment:
        # Playwright keeps an event loop in this thread, which Django takes for async code. Hence the scope, too: tests
        # of other modules run loops of their own.
        environment.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        chromium = playwright.chromium.launch(executable_path=path, args=_QUIET)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page in a session of its own: `open_page(dark=True)`. What it complains of fails the test."""
    complaints: list[str] = []
    opened = []

    def open_page(*, dark: bool = False, width: int = 1280, scripts: bool = True) -> Page:
        context = browser.new_context(
            color_scheme="dark" if dark else "light",
            viewport={"width": width, "height": 900},
            java_script_enabled=scripts,
        )
        opened.append(context)
        context.set_default_timeout(20_000)
        context.route("**/favicon.ico", lambda route: route.fulfill(status=204))  # browsers ask for it by themselves
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
        page.on("console", lambda said: complaints.append(said.text) if _is_complaint(said) else None)
        page.on("response", lambda got: complaints.append(f"{got.status} {got.url}") if _is_refused(got) else None)
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        return page

    yield open_page
    for context in opened:
        context.close()
    assert complaints == []


def _is_complaint(said: ConsoleMessage) -> bool:
    return said.type == "error" and not said.text.startswith("Failed to load resource")  # told with its address below


def _is_refused(got: Response) -> bool:
    return got.status >= 400


@pytest.fixture
def screenshot(request: pytest.FixtureRequest) -> Callable[[Page, str], None]:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)

    def screenshot(page: Page, name: str) -> None:
        page.screenshot(path=SCREENSHOTS / f"{re.sub(r'[^a-z0-9-]', '-', name.lower())}.png", full_page=True)

    return screenshot


def serious_findings(page: Page) -> list[str]:
    """What axe calls serious or critical on the page."""
    found = Axe().run(page).response["violations"]
    return [
        f"{finding['id']} ({finding['impact']}): {node['target']} {node['failureSummary']}"
        for finding in found
        if finding["impact"] in _SERIOUS
        for node in finding["nodes"]
    ]
