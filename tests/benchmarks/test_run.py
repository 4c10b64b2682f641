"""The benchmarks run, small, with the systems that are installed here, and leave nothing behind."""

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from redis import Redis

from benchmarks import __main__ as command
from benchmarks.processes import ROOT
from benchmarks.systems.base import WrongWork, require
from benchmarks.table import tables
from tests.waiting import wait_until

MARK = "BENCHMARK_TEST"
SMALL = """
import json, signal, sys
from benchmarks.command import leave
from benchmarks.run import Plan, run

signal.signal(signal.SIGTERM, leave)
plan = Plan(rounds=1, turns=int(sys.argv[1]), jobs=3, single=2, wire=2, workers=(1,))
print(json.dumps(run(plan, ["turnkit", "rq"], lambda text: None)))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """For temporary files of the run."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


@pytest.fixture
def mark(folder: Path) -> str:
    """In the environment of every process of the run."""
    return secrets.token_hex(8)


@contextmanager
def started(mark: str, folder: Path, turns: int) -> "Iterator[subprocess.Popen[bytes]]":
    command = [sys.executable, "-c", SMALL, str(turns)]
    environment = os.environ | {MARK: mark, "TMPDIR": str(folder)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def marked(mark: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                yield process
        except (psutil.Error, OSError):
            continue


def has_worker(mark: str) -> bool:
    return any("benchmarks.workers" in process.cmdline() for process in marked(mark))


@pytest.mark.timeout(180)
def test_a_small_run_measures_whole_turns_and_leaves_nothing_behind(mark: str, folder: Path):
    with started(mark, folder, turns=4) as running:
        output, problems = running.communicate(timeout=170)
    assert running.returncode == 0, problems.decode()
    measured = json.loads(output)

    kinds = [(result["kind"], result["system"]) for result in measured["results"]]
    assert sorted(kinds) == [
        ("backlog", "rq"),
        ("backlog", "turnkit"),
        ("one", "rq"),
        ("one", "turnkit"),
        ("wire", "turnkit"),
    ]
    by_kind = dict(zip(kinds, measured["results"], strict=True))
    # Other work of the cluster can add to a count, never take from it.
    assert by_kind["backlog", "turnkit"]["write_transactions"] >= 5
    assert by_kind["backlog", "turnkit"]["wal_bytes"] > 1000
    assert by_kind["backlog", "turnkit"]["connections"] >= 1
    assert len(by_kind["one", "turnkit"]["samples_ms"]) == 2
    wire = by_kind["wire", "turnkit"]["backlog"]
    assert wire["statements"] >= wire["round_trips"] - 4 > 0
    assert "| turnkit_django" in tables(measured)
    assert measured["conditions"]["postgres"]["fsync"] == "on"
    assert list(marked(mark)) == []
    assert list(folder.iterdir()) == []


@pytest.mark.kill
@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_takes_its_processes_along(number: signal.Signals, mark: str, folder: Path):
    with started(mark, folder, turns=100) as running:
        wait_until(lambda: has_worker(mark), "no worker was started", seconds=60)
        running.send_signal(number)
        running.communicate(timeout=60)
    wait_until(lambda: not list(marked(mark)), lambda: [process.cmdline() for process in marked(mark)])

    if number == signal.SIGTERM:
        assert list(folder.iterdir()) == []


@pytest.fixture
def corner() -> Iterator[str]:
    """The URL of a part of the Redis where no other test looks."""
    url = f"{os.environ['REDIS_URL'].rpartition('/')[0]}/9"
    yield url
    with Redis.from_url(url) as client:
        client.flushdb()


def test_a_worker_ends_when_its_starter_is_gone(corner: str):
    client = Redis.from_url(corner)
    command = [sys.executable, "-m", "benchmarks.workers", "rq", "0"]
    environment = os.environ | {"REDIS_URL": corner}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    ) as worker:
        try:
            wait_until(lambda: client.scard("rq:workers"), "it does not work")
            assert worker.stdin is not None
            worker.stdin.close()
            assert worker.wait(30) == 1
        finally:
            worker.kill()
            client.close()


def test_figures_of_work_that_was_not_done_are_refused():
    require("turnkit", expected=(4, 16), found=(4, 16))
    with pytest.raises(WrongWork, match=r"turnkit: expected the work to leave \(4, 16\), found \(4, 15\)"):
        require("turnkit", expected=(4, 16), found=(4, 15))


def test_a_missing_dbos_is_told_with_the_way_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        command.main([])
    assert "run `make bench`, or leave it out with `--systems turnkit rq`" in capsys.readouterr().err


@pytest.mark.parametrize("rounds", ["0", "-1", "many"])
def test_a_number_of_rounds_that_is_none_is_refused(rounds: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        command.main(["--rounds", rounds])
    assert "--rounds" in capsys.readouterr().err


def test_a_page_without_a_place_for_tables_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page, results = tmp_path / "page.md", tmp_path / "results.json"
    page.write_text("# Nothing\n")
    empty = {"packages": {}, "postgres": {"server_version": ""}, "systems": {}, "settings": {}}
    plan = {"rounds": 1, "turns": 1, "jobs": 1, "single": 1}
    names = ("date", "cores", "memory_gib", "system", "python", "valkey")
    conditions = dict.fromkeys(names, "") | empty | {"plan": plan}
    results.write_text(json.dumps({"conditions": conditions, "results": []}))

    with pytest.raises(SystemExit):
        command.main(["table", str(results), "--into", str(page)])
    assert "expected the lines" in capsys.readouterr().err
    assert page.read_text() == "# Nothing\n"
