"""The tutorial, followed to the letter.

Its files and commands are taken from the page and carried out in its order, in an empty folder, up to an answer in the
page of the reader's project and in its admin. What differs from a reader's own hands:

- The virtual environment is fresh, and turnkit_django is installed into it from a newly built wheel, but everything
  else comes from the environment of the tests, through a `.pth` file: `pip install` of the page downloads nothing.
- PostgreSQL and Redis are those of the page's own tip, `servers.py`, and its two printed lines are copied.
- The ports 8000 and 9000 are replaced by free ones; `createsuperuser` gets its password from a variable.
"""

import subprocess
import sys
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, OpenerDirector, build_opener

import pytest

from tests.docs.reader import PASSWORD, SECONDS, Command, File, Reader, steps
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/tutorial.md").read_text()
pytestmark = pytest.mark.timeout(420)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    [built] = (tmp_path / "dist").glob("*.whl")
    return built


@pytest.fixture
def reader(tmp_path: Path, wheel: Path) -> Iterator[Reader]:
    folder = tmp_path / "site"
    folder.mkdir()
    reader = Reader(folder, wheel)
    try:
        yield reader
    finally:
        reader.stop()


class Browser:
    """Keeps cookies, follows redirects, and sends the token of a form as a person's browser does."""

    def __init__(self, site: str) -> None:
        self.site = site
        self.cookies = CookieJar()
        self.opener: OpenerDirector = build_opener(HTTPCookieProcessor(self.cookies))
        self.address = ""

    def get(self, address: str) -> str:
        return self._open(address, None)

    def post(self, address: str, **fields: str) -> str:
        self.get(address)
        [token] = [str(cookie.value) for cookie in self.cookies if cookie.name == "csrftoken"]
        return self._open(address, urlencode(fields | {"csrfmiddlewaretoken": token}).encode())

    def _open(self, address: str, body: bytes | None) -> str:
        with self.opener.open(self.site + address, body, timeout=30) as response:
            self.address = response.url.removeprefix(self.site)
            return str(response.read().decode())


def test_the_tutorial_leads_to_an_answer_and_to_the_turn_in_the_admin(reader: Reader):
    reader.follow(PAGE)
    browser = Browser(reader.site)

    browser.post("/", question="Where is order 17?")
    turn = browser.address
    told = wait_until(lambda: "shipped" in (page := browser.get(turn)) and page, lambda: logs(reader), seconds=SECONDS)
    assert "The shop knows this:" in str(told)

    browser.post("/admin/login/?next=/admin/", username="admin", password=PASSWORD)
    page = browser.get(f"/admin/turnkit/turn/{turn.split('/')[2]}/change/")
    assert "lookup_order" in page
    assert "The shop knows this:" in page

    [worker] = [terminal for terminal in reader.terminals if "rqworker" in terminal.line]
    worker.stop()
    assert "One moment, please" in browser.post("/", question="And order 18?")
    turn = browser.address
    reader.start(worker.line, "istening on")
    wait_until(lambda: "There is no order 18." in browser.get(turn), lambda: logs(reader), seconds=SECONDS)


def test_the_page_shows_each_step_of_a_set_up():
    found = list(steps(PAGE))
    files = [step.path for step in found if isinstance(step, File)]
    lines = [step.line for step in found if isinstance(step, Command)]

    assert {"mysite/settings.py", "shop/agents.py", "shop/views.py", "mysite/urls.py", "shop/tests.py"} <= set(files)
    for words in ("pip install turnkit-django", "migrate", "rqworker turnkit", "turnkit_reconcile", "manage.py test"):
        assert any(words in line for line in lines), words


def logs(reader: Reader) -> str:
    return "\n".join(f"--- {terminal.line}\n{terminal.text()}" for terminal in reader.terminals)
