"""What follows a commit: wake-ups. A wake-up that cannot be sent costs time, never the submission."""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.db import transaction

from turnkit_django import conf
from turnkit_django.dispatch.base import get_dispatcher
from turnkit_django.store import connections

logger = logging.getLogger("turnkit")

unsent_count = 0
"""Wake-ups of this process that could not be sent."""


def wake(*turn_ids: str, on_failure: Callable[[tuple[str, ...]], None]) -> None:
    """After the commit, tell a worker to look for work, once for each turn.

    Args:
        turn_ids: The turns whose `wake_sent_at` was set for it.
        on_failure: Called with those whose wake-up could not be sent.
    """

    def send() -> None:  # no partial: Django names the failed function in its log, and a partial has no name
        _send(turn_ids, on_failure)

    transaction.on_commit(send, using=connections.alias(), robust=True)


def _send(turn_ids: tuple[str, ...], on_failure: Callable[[tuple[str, ...]], None]) -> None:
    global unsent_count
    for place in range(len(turn_ids)):
        try:
            get_dispatcher().send_wake()
        except Exception as error:
            # Each try may take a second: the rest would fail alike.
            unsent = turn_ids[place:]
            unsent_count += len(unsent)
            logger.warning(
                "wake-up not sent; reconcile will find the work: %s",
                conf.clean(f"{type(error).__name__}: {error}"),
                extra={"event": "wake.unsent", "turn_ids": list(unsent), "unsent_count": unsent_count},
            )
            on_failure(unsent)
            return
