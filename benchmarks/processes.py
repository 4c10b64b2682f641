"""Worker processes: started with a backlog waiting for them, watched, and ended by their ids."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks import first_call, load

ROOT = Path(__file__).resolve().parents[1]
_STOP_SECONDS = 8.0
_TAIL = 3000


class WorkerError(Exception):
    """A worker ended by itself or did not do its work in time; holds the end of its log."""


@dataclass
class Workers:
    """The workers of one measurement."""

    folder: Path
    popens: list[subprocess.Popen[bytes]]

    def wait_until(self, what: str, is_true: Callable[[], bool], *, seconds: float, pause: float) -> None:
        """Look every `pause` seconds until it is true.

        Raises:
            WorkerError: It did not come true in time, or a worker has ended.
        """
        end = time.monotonic() + seconds
        while not is_true():
            for popen in self.popens:
                if popen.poll() is not None:
                    raise WorkerError(f"worker {popen.pid} ended with {popen.returncode} before {what}:\n{self.log}")
            if time.monotonic() > end:
                raise WorkerError(f"waited {seconds:.0f} s in vain until {what}:\n{self.log}")
            time.sleep(pause)

    @property
    def first_calls(self) -> dict[int, first_call.FirstCall]:
        return first_call.noted(self.folder / "calls")

    @property
    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-_TAIL:] for path in sorted(self.folder.glob("*.log")))

    def cpu_seconds(self) -> float:
        """Since the first model call of each; a worker that has made none is not counted."""
        calls = self.first_calls
        return sum(
            load.tree_seconds(psutil.Process(popen.pid)) - calls[popen.pid].cpu_seconds
            for popen in self.popens
            if popen.pid in calls
        )

    def rss_bytes(self) -> int:
        """The resident memory of all of them, what they share counted in each."""
        return sum(psutil.Process(popen.pid).memory_info().rss for popen in self.popens)


@contextmanager
def running(system: str, count: int, environment: Mapping[str, str]) -> Iterator[Workers]:
    """Run `count` workers of a system until the block ends."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        workers = Workers(Path(name), [])
        (workers.folder / "calls").mkdir()
        try:
            for number in range(count):
                workers.popens.append(start(system, number, workers.folder, environment))
            yield workers
        finally:
            stop(workers.popens)


def start(system: str, number: int, folder: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """One process of a system; its log is `NUMBER.log` in the folder, which has a folder `calls`."""
    given = {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder), first_call.VARIABLE: str(folder / "calls")}
    with (folder / f"{number}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.workers", system, str(number)],
            cwd=folder,  # what a system drops beside itself goes with the folder
            env={**os.environ, **given, **environment},
            stdin=subprocess.PIPE,  # its end tells a worker that this process is gone
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def stop(popens: list[subprocess.Popen[bytes]]) -> None:
    """Politely, then by force."""
    for popen in popens:
        popen.terminate()
    end = time.monotonic() + _STOP_SECONDS
    for popen in popens:
        with suppress(subprocess.TimeoutExpired):
            popen.wait(max(0.0, end - time.monotonic()))
        popen.kill()
        popen.wait()
        if popen.stdin:
            popen.stdin.close()
