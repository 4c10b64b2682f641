"""The processes of the demo: real ones, each with its log, in sessions of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from example_project.demo.outcome import DemoError
from example_project.demo.signals import Signals

ROOT = Path(__file__).resolve().parents[2]
CRASH_VARIABLE = "TURNKIT_CRASH_AT"

_STOP_SECONDS = 4.0
_LOOK_SECONDS = 0.03
_WATCH_SECONDS = 0.25
_TAIL_LINES = 25


@dataclass
class Process:
    """A child of the demo.

    Attributes:
        is_expected_to_end: Whether the demo is about to end it itself.
    """

    name: str
    popen: subprocess.Popen[bytes]
    log: Path
    is_expected_to_end: bool = False

    @property
    def pid(self) -> int:
        return self.popen.pid

    def said(self, words: str) -> bool:
        return words in self.text()

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def tail(self) -> str:
        lines = self.text().splitlines()[-_TAIL_LINES:]
        return "\n".join([f"--- the end of what the {self.name} (process {self.pid}) said:", *lines])

    def kill(self) -> int:
        """SIGKILL; the return code, which is negative."""
        self.is_expected_to_end = True
        self.popen.kill()
        return self.popen.wait()


@dataclass
class Processes:
    """Starts, watches and stops them."""

    folder: Path
    signals: Signals
    all: list[Process] = field(default_factory=list)

    @contextmanager
    def stopped_at_the_end(self) -> Iterator[Processes]:
        try:
            yield self
        finally:
            self._stop()

    def start(self, name: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Process:
        """Run Python with `arguments` in the project's folder."""
        self.signals.check()
        log = self.folder / f"{name.replace(' ', '-')}.log"
        variables = {key: value for key, value in os.environ.items() if key != CRASH_VARIABLE}
        variables |= {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"} | dict(environment or {})
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C in a terminal goes to a whole process group; the demo stops its children itself, in order.
                start_new_session=True,
            )
        process = Process(name, popen, log)
        self.all.append(process)
        return process

    def manage(self, name: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Process:
        return self.start(name, str(ROOT / "manage.py"), *arguments, environment=environment)

    def wait_until(self, what: str, is_true: Callable[[], bool], *, seconds: float) -> None:
        """Look until it is true.

        Raises:
            DemoError: It did not come true in time, or a process ended that should not.
        """
        end = time.monotonic() + seconds
        while not is_true():
            self._require_running()
            if time.monotonic() > end:
                raise DemoError(f"waited {seconds:.0f} s in vain until {what}", log=self.tails())
            self.signals.pause(_LOOK_SECONDS)

    def watch(self) -> None:
        """Let them run until the demo is told to stop.

        Raises:
            DemoError: One of them ended by itself.
            KeyboardInterrupt: The demo was told to stop.
        """
        while True:
            self._require_running()
            self.signals.pause(_WATCH_SECONDS)

    def tails(self) -> str:
        return "\n".join(process.tail() for process in self.all)

    def _require_running(self) -> None:
        for process in self.all:
            if not process.is_expected_to_end and (code := process.popen.poll()) is not None:
                raise DemoError(f"the {process.name} ended by itself with code {code}", log=process.tail())

    def _stop(self) -> None:
        for process in self.all:
            process.is_expected_to_end = True
            process.popen.terminate()
        end = time.monotonic() + _STOP_SECONDS
        for process in self.all:
            try:
                process.popen.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
