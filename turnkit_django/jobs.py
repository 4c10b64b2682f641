"""What RQ runs: the entry points of wake-ups. They take no arguments; PostgreSQL says what is due."""

from __future__ import annotations

from turnkit_django import conf
from turnkit_django.engine import drain
from turnkit_django.engine import reconcile as maintenance


def wake() -> None:
    """Claim and run what is due until nothing is, or until this job's slice of time is over."""
    drain.run_slice(seconds=conf.get().WORKER_SLICE)


def reconcile() -> None:
    """One maintenance pass."""
    maintenance.run_pass(batch=conf.get().MAINTENANCE_BATCH)
