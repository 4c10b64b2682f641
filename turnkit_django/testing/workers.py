"""`drain`: everything that is due, run in this process."""

from __future__ import annotations

import threading
import time

from turnkit_django import conf
from turnkit_django.engine import drain as engine_drain
from turnkit_django.engine import heartbeat, reconcile, runner
from turnkit_django.store import inboxes, reads


def drain(*, max_seconds: float = 30) -> int:
    """Deliver every message, run every due turn and maintenance pass in this process until nothing is due; how many
    turns were run.

    It reads PostgreSQL only, so it works without Redis and where `on_commit` does not fire (Django's TestCase,
    pytest's `django_db`). Claims that a simulated crash left behind in this process are taken over at once. Work that
    becomes due within `max_seconds` (a back-off, a parked model call, a lease) is waited for.

    Args:
        max_seconds: How long to wait for such work in all.
    """
    end = time.monotonic() + max_seconds
    count = 0
    while True:
        ran = _pass()
        count += ran
        if ran and reads.ready(limit=1):
            continue  # parked, and due again by now
        waits = [seconds for seconds in (reads.seconds_to_next(), inboxes.seconds_to_next()) if seconds is not None]
        wait = min(waits, default=None)
        if wait is None or time.monotonic() + wait > end:
            return count
        threading.Event().wait(wait + 0.01)


def _pass() -> int:
    for turn_id, token, attempts in reads.claimed_by(runner.worker_name()):
        if token not in heartbeat.tokens():
            reconcile.recover(turn_id, token, attempts, is_dead=True)
    reconcile.run_pass(batch=conf.get().MAINTENANCE_BATCH)
    count = 0
    while engine_drain.run_due():
        count += 1
    return count
