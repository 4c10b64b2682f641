"""What follows a commit: wake-ups and events. Neither can harm what was committed.

A wake-up that cannot be sent costs time, never the submission. Events are not durable: a process that dies between the
commit and the sending tells nobody.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django.db import transaction
from django.db.models import Model
from django.dispatch import Signal

from turnkit_django import conf, signals
from turnkit_django.core.events import (
    DeliveryEvent,
    Event,
    MessageEvent,
    ModelCallEvent,
    OnEvent,
    ToolCallEvent,
    TurnEvent,
)
from turnkit_django.dispatch.base import get_dispatcher
from turnkit_django.models import Delivery, Message, ToolExecution, Turn
from turnkit_django.store import connections

logger = logging.getLogger("turnkit")

unsent_count = 0
"""Wake-ups of this process that could not be sent."""
_LONG_SECONDS = 0.5
_SILENCE_SECONDS = 10
_silent_until = 0.0
"""A Redis that hangs is not asked again for a while: a request that cancels many turns would wait for each of them."""

_ADDRESSES: dict[type[Event], tuple[Signal, type[Model]]] = {
    TurnEvent: (signals.turn_changed, Turn),
    ModelCallEvent: (signals.model_call_changed, Turn),
    MessageEvent: (signals.message_created, Message),
    ToolCallEvent: (signals.tool_call_changed, ToolExecution),
    DeliveryEvent: (signals.delivery_changed, Delivery),
}


def wake(*turn_ids: str, on_failure: Callable[[tuple[str, ...]], None]) -> None:
    """After the commit, tell a worker to look for work, once for each turn.

    Args:
        turn_ids: The turns whose `wake_sent_at` was set for it.
        on_failure: Called with those whose wake-up could not be sent.
    """

    def send() -> None:  # no partial: Django names the failed function in its log, and a partial has no name
        _send(turn_ids, on_failure)

    transaction.on_commit(send, using=connections.alias(), robust=True)


def wake_for_messages() -> None:
    """After the commit, tell a worker to look for messages to deliver and to answer. No row notes it."""
    transaction.on_commit(_send_unnoted, using=connections.alias(), robust=True)


def _send(turn_ids: tuple[str, ...], on_failure: Callable[[tuple[str, ...]], None]) -> None:
    for place in range(len(turn_ids)):
        # Each try may take a second: the rest would fail alike.
        if not _is_sent(unless=turn_ids[place:]):
            on_failure(turn_ids[place:])
            return


def _send_unnoted() -> None:
    _is_sent(unless=())


def _is_sent(*, unless: tuple[str, ...]) -> bool:
    """Send one wake-up; where that fails, log the turns that go without."""
    global unsent_count, _silent_until
    began = time.monotonic()
    try:
        if began < _silent_until:
            raise TimeoutError("it did not answer a moment ago")
        get_dispatcher().send_wake()
    except Exception as error:
        if time.monotonic() - began > _LONG_SECONDS:
            _silent_until = time.monotonic() + _SILENCE_SECONDS
        unsent_count += max(len(unless), 1)
        logger.warning(
            "wake-up not sent; reconcile will find the work: %s",
            conf.clean(f"{type(error).__name__}: {error}"),
            extra={"event": "wake.unsent", "turn_ids": list(unless), "unsent_count": unsent_count},
        )
        return False
    return True


_thread = threading.local()


class News:
    """The events of one try of a move.

    Attributes:
        events: In the order in which they are sent.
        is_marked: Whether the try shall note its transaction id, to be known again.
        is_held: Whether somebody else sends them, at a better moment than the commit.
        result: What the move of the try gave.
    """

    def __init__(self, *events: Event, is_marked: bool = False, is_held: bool = False) -> None:
        self.events = list(events)
        self.is_marked = is_marked
        self.is_held = is_held
        self.transaction_id: str | None = None
        self.result: object = None

    def send_after_commit(self) -> None:
        """Tell all receivers when the open transaction has committed; at once if none is open."""

        def send() -> None:  # no bound method: Django names the failed function in its log by its `__qualname__`
            self.send()

        if not connections.current().in_atomic_block:
            self.send()  # so would Django, but first it would take a connection out of the pool
        elif self.events:
            transaction.on_commit(send, using=connections.alias(), robust=True)

    def send(self) -> None:
        """Tell all receivers now; in a receiver that made a move itself, after the events that are being told."""
        waiting: deque[Event] | None = getattr(_thread, "waiting", None)
        if waiting is not None:
            waiting.extend(self.events)
            return
        _thread.waiting = waiting = deque(self.events)
        try:
            while waiting:
                _deliver(waiting.popleft())
        finally:
            _thread.waiting = None


_collecting: ContextVar[News] = ContextVar("news")


@contextmanager
def collecting(news: News) -> Iterator[None]:
    """Gather in `news` what the move inside tells."""
    token = _collecting.set(news)
    try:
        yield
    finally:
        _collecting.reset(token)


def tell(*events: Event) -> None:
    """Say, inside a move, what it does; receivers hear it after the commit."""
    _collecting.get().events.extend(events)


def _deliver(event: Event) -> None:
    family = next(family for family in _ADDRESSES if isinstance(event, family))
    signal, sender = _ADDRESSES[family]
    call_safely(lambda event: signal.send_robust(sender=sender, event=event), event, name=f"of {family.__name__}s")


def call_safely(receiver: OnEvent, event: Event, *, name: str) -> None:
    """Call a receiver: what it raises is logged, a transaction it leaves open is rolled back.

    Only an order to stop gets through: KeyboardInterrupt, and SystemExit in a worker that was asked to stop.
    """
    before = connections.open_blocks()
    try:
        receiver(event)
    except BaseException as problem:
        is_order = isinstance(problem, KeyboardInterrupt) or (
            isinstance(problem, SystemExit) and get_dispatcher().is_stopping()
        )
        if is_order:
            raise
        signals.log_failure(name, problem)
    if connections.roll_back_since(before):
        signals.log_failure(name, RuntimeError("it left a transaction open, which was rolled back"))
