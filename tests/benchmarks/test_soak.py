"""The soak runs, small, tells the truth in its exit status, and leaves nothing behind."""

import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.processes import ROOT
from tests.benchmarks.test_run import MARK, marked
from tests.waiting import wait_until

pytestmark = [pytest.mark.kill, pytest.mark.timeout(240)]


class Soak:
    """`python -m benchmarks.soak`, with what it says in files."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.temporary, self.mark = folder / "temporary", secrets.token_hex(8)
        self.temporary.mkdir()
        self._report, self._progress = folder / "report", folder / "progress"
        with self._report.open("wb") as report, self._progress.open("wb") as progress:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.soak", *options],
                cwd=ROOT,
                env=os.environ | {MARK: self.mark, "TMPDIR": str(self.temporary)},
                stdout=report,
                stderr=progress,
            )

    @property
    def report(self) -> str:
        return self._report.read_text()

    @property
    def progress(self) -> str:
        return self._progress.read_text()

    def send(self, number: int) -> None:
        self._popen.send_signal(number)

    def ended(self) -> int:
        return self._popen.wait(200)

    def require_nothing_left(self) -> None:
        wait_until(lambda: not list(marked(self.mark)), lambda: [process.cmdline() for process in marked(self.mark)])
        assert list(self.temporary.iterdir()) == []


@pytest.fixture
def soak(tmp_path: Path):
    found: list[Soak] = []

    def start(*options: str) -> Soak:
        found.append(Soak(tmp_path, *options))
        return found[-1]

    yield start
    for each in found:
        each.send(signal.SIGKILL)
        each.ended()


def count(report: str, name: str) -> int:
    (line,) = [line for line in report.splitlines() if line.startswith(f"| {name} |")]
    return int(line.split("|")[2])


def test_a_small_soak_keeps_every_rule_and_leaves_nothing_behind(soak):
    running = soak("--turns", "60", "--seed", "3", "--flushes", "1")
    status = running.ended()
    assert status == 0, running.report + running.progress
    assert "Seed 3," in running.report
    assert "broken" not in running.report
    assert count(running.report, "kills of a worker") >= 1
    assert count(running.report, "times that Valkey was emptied") == 1
    assert count(running.report, "restarts of PostgreSQL") == 1
    assert count(running.report, "turns") >= 60
    running.require_nothing_left()


def test_a_soak_that_does_not_come_to_its_end_says_what_is_broken(soak):
    running = soak("--turns", "400", "--seconds", "3")
    assert running.ended() == 1, running.report + running.progress
    assert "| every turn ends as its task says | **broken** |" in running.report
    assert "- PostgreSQL was not restarted" in running.report
    running.require_nothing_left()


def test_a_soak_that_is_told_to_end_takes_a_restarted_server_along(soak):
    running = soak("--turns", "40", "--flushes", "0")
    wait_until(lambda: "restarting PostgreSQL" in running.progress, lambda: running.progress, seconds=60)
    running.send(signal.SIGTERM)
    assert running.ended() == 128 + signal.SIGTERM
    running.require_nothing_left()
