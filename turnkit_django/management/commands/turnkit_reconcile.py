from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error as DatabaseProblem

from turnkit_django import conf
from turnkit_django.engine import drain, reconcile
from turnkit_django.store import connections

logger = logging.getLogger("turnkit")

_LARGEST_BATCH = 1_000_000
_SHORTEST_PAUSE = 0.01  # lets nobody starve when a pass takes longer than the pause


class Command(BaseCommand):
    help = (
        "Take over the turns of dead workers, deliver messages and wake what is due. Run it from cron, or with --loop."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--loop", type=float, metavar="SECONDS", help="a pass every so many seconds until stopped")
        parser.add_argument(
            "--batch", type=int, metavar="N", help="rows of each kind a pass; default MAINTENANCE_BATCH"
        )
        parser.add_argument("--run", action="store_true", help="also run what is due in this process: needs no Redis")

    def handle(self, *args: Any, **options: Any) -> None:
        batch = options["batch"] if options["batch"] is not None else conf.get().MAINTENANCE_BATCH
        pause = 1.0 if options["loop"] is None else options["loop"]
        if not 1 <= batch <= _LARGEST_BATCH:
            raise CommandError(f"--batch: expected a positive whole number, at most {_LARGEST_BATCH}, got {batch}")
        if not 0 < pause <= threading.TIMEOUT_MAX:
            raise CommandError(f"--loop: expected a positive number of seconds, got {pause:g}")
        self._is_quiet = options["verbosity"] == 0
        if options["loop"] is not None:
            self._loop(batch, run=options["run"], pause=pause)
        elif errors := self._pass(batch, run=options["run"]):
            raise CommandError(f"{errors} rows could not be handled; each is logged and looked at again later")

    def _loop(self, batch: int, *, run: bool, pause: float) -> None:
        """Passes until a signal comes. Running turns takes its time from the pause, so that a pass is never late."""
        stop = _stop_on_signals()
        while stop.empty():
            due = time.monotonic() + pause
            try:
                self._pass(batch, run=run, seconds=pause, should_stop=lambda: not stop.empty())
            except DatabaseProblem as problem:
                told = {"event": "reconcile.error"}
                text = conf.clean(f"{type(problem).__name__}: {problem}").strip()
                logger.error("reconcile: the database failed; trying again: %s", text, extra=told)
                connections.drop()
            with suppress(Empty):
                stop.put(stop.get(timeout=max(due - time.monotonic(), _SHORTEST_PAUSE)))

    def _pass(
        self,
        batch: int,
        *,
        run: bool,
        seconds: float = math.inf,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> int:
        counts = reconcile.run_pass(batch=batch)
        reconcile.note_pass()
        ran = drain.run_all(seconds=seconds, should_stop=should_stop) if run else 0
        if counts.errors or not self._is_quiet:
            self.stdout.write(
                f"recovered {counts.recovered}, readied {counts.readied}, overdue {counts.overdue}, "
                f"delivered {counts.delivered}, continued {counts.continued}, woken {counts.woken}, "
                f"unsent {counts.unsent}, run {ran}, errors {counts.errors}"
            )
        return counts.errors


def _stop_on_signals() -> SimpleQueue[int]:
    """A loop ends between two turns when it is told to. An Event could deadlock: its lock is not reentrant."""
    stop: SimpleQueue[int] = SimpleQueue()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        stop.put(number)

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return stop
