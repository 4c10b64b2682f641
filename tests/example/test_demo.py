import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

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
    done = demo("--ticket", "[bold]Where is order 1002?", DATABASE_URL="", REDIS_URL="")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "[bold]Where is order 1002?" in done.stdout
    assert "Your order 1002, the set of six cups, is shipped." in done.stdout
    assert "What next:" in done.stdout
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


def test_a_blank_ticket_is_refused() -> None:
    done = demo("--ticket", "  ")

    assert done.returncode == 2
    assert "expected a text that is not blank" in done.stderr
