"""A ticket as its customer sees it: what was said, what was done in plain words, and how things stand.

Arguments of tools, their results and errors are the staff's. Only what is written here reaches the customer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from example_project.helpdesk.models import Ticket
from turnkit_django.models import Message, ToolExecution, Turn

MOST_MESSAGES = 200

_ORDER_NUMBER = re.compile(r'"order_number"\s*:\s*(\d{1,9})\s*[,}]')

_WENT_WRONG = "Something went wrong on our side, and your message could not be answered. Please write to us again."
_SENTENCES = {
    Turn.Status.PENDING: "Waiting for a worker.",
    Turn.Status.RUNNING: "The help desk is writing an answer.",
    Turn.Status.WAITING: "The language model is busy. It will be asked again shortly.",
    Turn.Status.PAUSED: "The work on this is paused.",
    Turn.Status.COMPLETED: "The help desk has answered.",
    Turn.Status.FAILED: _WENT_WRONG,
    Turn.Status.STALE: _WENT_WRONG,
    Turn.Status.CANCELLED: "Cancelled. Steps that were taken before stay as they are.",
}
WORDS = {
    Turn.Status.PENDING: "waiting",
    Turn.Status.RUNNING: "working",
    Turn.Status.WAITING: "waiting",
    Turn.Status.PAUSED: "waiting",
    Turn.Status.COMPLETED: "answered",
    Turn.Status.FAILED: "failed",
    Turn.Status.STALE: "failed",
    Turn.Status.CANCELLED: "cancelled",
}
"""A turn's status in the customer's words."""

_X = ToolExecution.Status
_STEPS = {
    "lookup_order": {
        _X.RUNNING: "Looking up {order}",
        _X.COMPLETED: "Looked up {order}",
        _X.INTERRUPTED: "Began to look up {order}, and was interrupted",
        _X.FAILED: "Could not find {order}",
    },
    "list_orders": {
        _X.RUNNING: "Looking through your orders",
        _X.COMPLETED: "Looked through your orders",
        _X.INTERRUPTED: "Began to look through your orders, and was interrupted",
        _X.FAILED: "Could not look through your orders",
    },
    "refund": {
        _X.RUNNING: "Refunding {order}",
        _X.COMPLETED: "Refunded {order}",
        _X.INTERRUPTED: "Began to refund {order}; it is not known yet whether that worked",
        _X.FAILED: "Could not refund {order}",
    },
    "add_note": {
        _X.RUNNING: "Writing a note for our staff",
        _X.COMPLETED: "Left a note for our staff",
        _X.INTERRUPTED: "Began to write a note for our staff, and was interrupted",
        _X.FAILED: "Could not leave a note for our staff",
    },
}
_OTHER_STEP = {
    _X.RUNNING: "Working on it",
    _X.COMPLETED: "Took a step",
    _X.INTERRUPTED: "Began a step, and was interrupted",
    _X.FAILED: "Tried a step that did not work",
}


@dataclass(frozen=True)
class Entry:
    """A line of the thread.

    Attributes:
        kind: `customer`, `agent` or `step`.
        note: What became of a customer's message that was not answered, or empty.
    """

    kind: str
    text: str
    at: datetime
    note: str = ""


@dataclass(frozen=True)
class Thread:
    """What the page shows.

    Attributes:
        entries: Those after the message that the page has seen last.
        last: The number of the last message, shown or not.
        is_cut: Whether older ones were left out.
        word: How things stand, in one word.
        sentence: The same in a sentence.
        is_open: Whether the help desk is at work, so that the page must look again.
        stamp: Changes with the word and the sentence.
    """

    entries: list[Entry]
    last: int
    is_cut: bool
    word: str
    sentence: str
    is_open: bool
    stamp: str


def read(ticket: Ticket, turn: Turn | None, *, after: int = 0) -> Thread:
    """The thread after the message with the number `after`.

    Args:
        turn: The current one. It was read before the messages are: an ended turn has then stored all of them.
    """
    newest = Message.objects.filter(conversation=ticket.conversation_id, sequence__gt=after).order_by("-sequence")
    rows = newest.select_related("turn", "tool_execution").defer("tool_execution__result", "turn__output_text")
    messages = list(reversed(rows[:MOST_MESSAGES]))
    return Thread(
        entries=[entry for message in messages for entry in _entries(message, turn)],
        last=messages[-1].sequence if messages else after,
        is_cut=bool(messages) and messages[0].sequence > after + 1,
        word=WORDS[Turn.Status(turn.status)] if turn else "closed",
        sentence=_sentence(turn) if turn else "Nothing is being worked on.",
        is_open=turn is not None and not turn.is_terminal,
        stamp=f"{turn.pk}-{turn.status}-{turn.revision}-{turn.attempts}" if turn else "",
    )


def _entries(message: Message, current: Turn | None) -> Iterator[Entry]:
    """What a message adds to the thread: nothing, if it only asks for tools or was cut off."""
    if message.role == "tool" and message.tool_execution:
        if step := _step(message.tool_execution):
            yield Entry("step", step, message.created_at)
    elif message.role == "user":
        yield Entry("customer", message.text, message.created_at, _note(message.turn, current))
    elif message.text.strip() and "finish_reason" not in message.metadata:
        yield Entry("agent", message.text, message.created_at)


def _note(turn: Turn | None, current: Turn | None) -> str:
    """Of an earlier turn that ended without an answer; the current one has its sentence below the thread."""
    if turn is None or turn == current or not turn.is_terminal or turn.status == Turn.Status.COMPLETED:
        return ""
    return "Cancelled" if turn.status == Turn.Status.CANCELLED else "Could not be answered"


def _sentence(turn: Turn) -> str:
    if turn.status == Turn.Status.PENDING and turn.attempts:
        return "Its worker was lost. Another one goes on where it stood."
    if turn.status == Turn.Status.RUNNING and (step := _running_step(turn)):
        return f"{step}."
    return _SENTENCES[Turn.Status(turn.status)]


def _running_step(turn: Turn) -> str:
    running = turn.tool_executions.filter(status=_X.RUNNING).order_by("ordinal").defer("result").first()
    return _step(running) if running else ""


def _step(execution: ToolExecution) -> str:
    """A call of a tool in words; empty if it never began."""
    words = _STEPS.get(execution.tool_name, _OTHER_STEP).get(_X(execution.status), "")
    return words.format(order=_order(execution))


def _order(execution: ToolExecution) -> str:
    """The order that a call is about. The model wrote the arguments: nothing but a plain number is shown of them."""
    found = _ORDER_NUMBER.search(execution.arguments_text)
    return f"order {found[1]}" if found else "an order"
