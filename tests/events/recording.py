"""What tests of events share: receivers that note, and the comparison of what was heard with the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from turnkit_django import signals
from turnkit_django.core.events import Event
from turnkit_django.core.states import SETTLED
from turnkit_django.models import Delivery, Message, ToolExecution, Turn

SIGNALS = [getattr(signals, name) for name in signals.__all__]
project: list[Event] = []
"""What `ON_EVENT` has heard, if it names `note`."""
SETTLING = {
    "completed": "tool_call.completed",
    "failed": "tool_call.failed",
    "cancelled": "tool_call.skipped",
    "interrupted": "tool_call.interrupted",
}


def note(event: Event) -> None:
    project.append(event)


NOTE = f"{__name__}.note"


@contextmanager
def heard() -> Iterator[list[Event]]:
    """Every event of the block, as Django receivers hear it."""
    found: list[Event] = []

    def receive(*, event: Event, **_: object) -> None:
        found.append(event)

    with connected(receive):
        yield found


@contextmanager
def connected(receive: Callable[..., object]) -> Iterator[None]:
    for signal in SIGNALS:
        signal.connect(receive, weak=False)
    try:
        yield
    finally:
        for signal in SIGNALS:
            signal.disconnect(receive)


def types(events: list[Event]) -> list[str]:
    return [event.type for event in events]


def assert_told_once(events: list[Event]) -> None:
    """Whatever the rows say has happened was told, and once."""
    turns, executions = list(Turn.objects.all()), list(ToolExecution.objects.all())
    ends = [(f"turn.{turn.status}", turn.pk) for turn in turns if turn.is_terminal]
    submissions = [("turn.submitted", turn.pk) for turn in turns if turn.submitted_at]
    messages = [("message.created", pk) for pk in Message.objects.values_list("pk", flat=True)]
    created = [("tool_call.created", execution.pk) for execution in executions]
    settled = [(SETTLING[item.status], item.pk) for item in executions if item.status in SETTLED]
    sent = [("delivery.sent", pk) for pk in Delivery.objects.values_list("pk", flat=True)]
    arrived = Delivery.objects.filter(delivered_at__isnull=False).values_list("pk", flat=True)
    delivered = [("delivery.delivered", pk) for pk in arrived]
    expected = Counter([*ends, *submissions, *messages, *created, *settled, *sent, *delivered])

    found = Counter((event.type, _row_of(event)) for event in events)
    assert expected == Counter({told: n for told, n in found.items() if told in expected or _is_final(told[0])})


def _row_of(event: Event) -> object:
    names = ("delivery_id", "message_id", "execution_id", "turn_id")
    return next(row for name in names if (row := getattr(event, name, None)))


def _is_final(kind: str) -> bool:
    ends = {"turn.completed", "turn.failed", "turn.cancelled", "turn.stale", "turn.submitted"}
    deliveries = {"delivery.sent", "delivery.delivered"}
    return kind in {"message.created", "tool_call.created", *ends, *deliveries, *SETTLING.values()}
