from __future__ import annotations

import signal
import threading
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from turnkit_django import conf
from turnkit_django.engine import drain, reconcile


class Command(BaseCommand):
    help = "Take over the turns of dead workers and wake what is due. Run it from cron, or with --loop."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--loop", type=float, metavar="SECONDS", help="repeat with this pause until stopped")
        parser.add_argument(
            "--batch", type=int, metavar="N", help="rows of each kind a pass; default MAINTENANCE_BATCH"
        )
        parser.add_argument("--run", action="store_true", help="also run what is due in this process: needs no Redis")

    def handle(self, *args: Any, **options: Any) -> None:
        batch = options["batch"] if options["batch"] is not None else conf.get().MAINTENANCE_BATCH
        pause = 1.0 if options["loop"] is None else options["loop"]
        if batch < 1 or not 0 < pause <= threading.TIMEOUT_MAX:
            raise CommandError("expected --batch and --loop to be positive numbers")
        stop = _stop_on_signals() if options["loop"] is not None else None
        while True:
            errors = self._pass(batch, run=options["run"])
            if stop is None:
                if errors:
                    raise CommandError(f"{errors} rows could not be handled; each is logged and looked at again later")
                return
            try:
                stop.get(timeout=options["loop"])
            except Empty:
                continue
            return

    def _pass(self, batch: int, *, run: bool) -> int:
        counts = reconcile.run_pass(batch=batch)
        ran = drain.run_all() if run else 0
        self.stdout.write(
            f"recovered {counts.recovered}, readied {counts.readied}, overdue {counts.overdue}, "
            f"woken {counts.woken}, run {ran}, errors {counts.errors}"
        )
        return counts.errors


def _stop_on_signals() -> SimpleQueue[int]:
    """A loop ends between two passes when it is told to. An Event could deadlock: its lock is not reentrant."""
    stop: SimpleQueue[int] = SimpleQueue()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        stop.put(number)

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return stop
