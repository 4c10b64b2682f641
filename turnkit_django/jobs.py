"""What RQ runs: the entry points of wake-ups. They take no arguments; PostgreSQL says what is due."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from turnkit_django import conf
from turnkit_django.engine import drain
from turnkit_django.engine import reconcile as maintenance
from turnkit_django.errors import TurnkitError

logger = logging.getLogger("turnkit")


def wake() -> None:
    """Claim and run what is due until nothing is, or until this job's slice of time is over."""
    _without_secrets(partial(drain.run_slice, seconds=conf.get().WORKER_SLICE))


def reconcile() -> None:
    """One maintenance pass."""
    _without_secrets(partial(maintenance.run_pass, batch=conf.get().MAINTENANCE_BATCH))
    maintenance.note_pass()


def _without_secrets(work: Callable[[], object]) -> None:
    """RQ keeps the traceback of a failed job in Redis: it gets the cleaned last line, the log the cleaned whole."""
    try:
        work()
        return
    except (KeyboardInterrupt, SystemExit) as order:
        ending: BaseException = type(order)()  # without its words, and without what it interrupted
    except Exception as problem:
        logger.error("a job failed: %s", conf.clean_traceback(problem), extra={"event": "job.failed"})
        said = conf.clean(f"{type(problem).__name__}: {problem}")
        ending = TurnkitError(f"{said} (the log has the traceback)")
    raise ending
