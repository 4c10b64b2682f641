import os
import re
import signal
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from tests.example import pages
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, "-m", "example_project.demo"]


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the demo puts its temporary files, apart from those of a demo that somebody else runs."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("DEMO_MODEL", raising=False)
    return tmp_path


def demo(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*DEMO, *arguments],
        cwd=ROOT,
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def traces(scratch: Path) -> list[str]:
    """What demos have left: databases, keys, files."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        found = [name for (name,) in connection.execute("SELECT datname FROM pg_database WHERE datname ~ '-demo-'")]
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        found += [key.decode() for key in client.scan_iter("turnkit-demo-*")]
    return [*found, *map(str, scratch.iterdir())]


@pytest.mark.kill
@pytest.mark.timeout(180)
def test_the_story_with_the_servers_that_the_environment_names(scratch: Path) -> None:
    done = demo("--once")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "with SIGKILL" in done.stdout
    assert "called 2 times" in done.stdout
    assert done.stdout.count("│ ok ") == 6
    assert done.stdout.rstrip().endswith("All of it holds.")
    assert done.stderr == ""
    assert traces(scratch) == []


@pytest.mark.kill
@pytest.mark.timeout(180)
def test_a_ticket_of_ones_own_on_embedded_servers(scratch: Path) -> None:
    done = demo("--once", "--ticket", "[bold]Where is order 1002?", DATABASE_URL="", REDIS_URL="")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "[bold]Where is order 1002?" in done.stdout
    assert "Your order 1002, the set of six cups, is shipped." in done.stdout
    assert traces(scratch) == []


@pytest.mark.kill
@pytest.mark.timeout(180)
def test_ctrl_c_stops_everything(scratch: Path) -> None:
    with subprocess.Popen([*DEMO, "--once"], cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        for line in running.stdout:
            if "claims the turn" in line:
                break
        children = psutil.Process(running.pid).children(recursive=True)
        running.send_signal(signal.SIGINT)
        rest = running.stdout.read()

    assert children
    assert not any(child.is_running() for child in children)
    assert running.returncode == 130
    assert "Nothing was left behind" in rest
    assert traces(scratch) == []


@pytest.mark.kill
@pytest.mark.timeout(240)
def test_the_help_desk_stays_open_until_it_is_told_to_stop(scratch: Path) -> None:
    with taken_port() as port:
        command = [*DEMO, "--ticket", "Where is order 1002?", "--port", str(port)]
        with subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as running:
            said = until_open(running)
            children = psutil.Process(running.pid).children(recursive=True)
            visitor = Visitor(said)
            assert int(visitor.site.rsplit(":", 1)[1]) > port

            visitor.log_in()
            ticket = visitor.ask("What are my orders?")
            answer = wait_until(lambda: visitor.news_of(ticket), seconds=90)

            running.send_signal(signal.SIGINT)
            rest = running.stdout.read() if running.stdout else ""

    assert "Looked through your orders" in answer
    assert "- 1001, blue teapot: delivered" in answer
    assert 'hx-trigger="every' not in answer
    assert running.returncode == 0, rest
    assert "Nothing was left behind" in rest
    assert children
    assert not any(child.is_running() for child in children)
    assert traces(scratch) == []


@contextmanager
def taken_port() -> Iterator[int]:
    """A port on which somebody else listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def until_open(running: "subprocess.Popen[str]") -> str:
    assert running.stdout
    said = ""
    for line in running.stdout:
        said += line
        if "Ctrl-C stops" in line:
            return said
    raise AssertionError(said)


class Visitor:
    """Who has read the terminal and opens the page in a browser."""

    def __init__(self, said: str) -> None:
        found = re.search(r"(http://\S+)/ +log in as (\S+)", said)
        password = re.search(r"password of both: (\S+)", said)
        assert found, said
        assert password, said
        self.site, self.name, self.password = found[1], found[2], password[1]
        cookies = urllib.request.HTTPCookieProcessor()
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies).open

    def log_in(self) -> None:
        page = self._get("/")
        assert "Log in" in page
        form = {"username": self.name, "password": self.password, "next": "/tickets/"}
        assert "Your tickets" in self._post("/login/", form, page)
        assert "--accent" in self._get("/static/helpdesk/style.css")
        assert "htmx" in self._get("/static/django_htmx/htmx-2.min.js")

    def ask(self, text: str) -> str:
        """Open a ticket; its page."""
        page = self._get("/tickets/new/")
        opened = self._post("/tickets/new/", {"text": text, "key": pages.key_of(page)}, page)
        assert "<h1>Ticket" in opened
        return opened

    def news_of(self, page: str) -> str:
        """What the page gets when it polls, once the answer is there."""
        poll = pages.poll_of(page)
        assert poll
        news = self._get(poll)
        return news if pages.poll_of(news) is None and news else ""

    def _get(self, path: str) -> str:
        with self._open(self.site + path) as response:
            body: bytes = response.read()
        return body.decode()

    def _post(self, path: str, form: dict[str, str], page: str) -> str:
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
        assert token
        data = urllib.parse.urlencode(form | {"csrfmiddlewaretoken": token[1]}).encode()
        with self._open(self.site + path, data) as response:
            body: bytes = response.read()
        return body.decode()


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/x"}, "FAILED: DATABASE_URL names a PostgreSQL that"),
        ({"REDIS_URL": "redis://127.0.0.1:1/0"}, "FAILED: REDIS_URL names a Redis that cannot be used"),
        ({"DEMO_MODEL": "anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY": ""}, "`ANTHROPIC_API_KEY`"),
    ],
)
def test_what_cannot_be_used_is_named(scratch: Path, variables: dict[str, str], said: str) -> None:
    done = demo("--once", **variables)

    assert done.returncode == 1
    assert said in " ".join(done.stdout.split())
    assert traces(scratch) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ticket", "  "], "expected a text that is not blank"),
        (["--port", "80"], "expected a number from 1024 to 65535, got '80'"),
        (["--port", "http"], "expected a number from 1024 to 65535, got 'http'"),
        (["--once", "--port", "8000"], "with --once no help desk is opened"),
    ],
)
def test_a_wrong_argument_is_refused(arguments: list[str], said: str) -> None:
    done = demo(*arguments)

    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
