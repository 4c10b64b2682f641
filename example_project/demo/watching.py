"""Watches one turn from outside, by its rows, and tells what it sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection

from turnkit_django import get_agent
from turnkit_django.models import Message, ToolExecution, Turn

_SHORT = 90


@dataclass(frozen=True)
class Event:
    """Something that happened, by the clock of the database."""

    at: datetime
    who: str
    what: str


@dataclass
class Watcher:
    """Looks at the rows of a turn again and again.

    Attributes:
        turn: As last seen.
        events: What was seen, in the order of seeing.
        claims: The processes that were seen working on it, in order.
    """

    turn: Turn
    tell: Callable[[str], None]
    events: list[Event] = field(default_factory=list)
    claims: list[int] = field(default_factory=list)
    _attempts: int = 0
    _claimed_at: datetime | None = None
    _sequence: int = 0
    _starts: dict[str, datetime | None] = field(default_factory=dict)

    def look(self) -> Watcher:
        """Read the rows and tell what is new; itself."""
        self.turn = Turn.objects.get(pk=self.turn.pk)
        seen = [*self._recovery(), *self._claim()]
        for message in self.turn.messages.filter(sequence__gt=self._sequence).order_by("sequence"):
            seen += self._message(message)
        for execution in self.turn.tool_executions.order_by("ordinal"):
            seen += self._start_of(execution)
        for event in sorted(seen, key=lambda event: event.at):
            self.note(event.at, event.who, event.what)
        return self

    def note(self, at: datetime | None, who: str, what: str) -> None:
        self.events.append(Event(at or now(), who, what))
        self.tell(f"{who}: {what}")

    @property
    def worker(self) -> str:
        return f"process {self.claims[-1]}" if self.claims else "a worker"

    def running_tool(self) -> ToolExecution | None:
        return self.turn.tool_executions.filter(status=ToolExecution.Status.RUNNING).first()

    def _recovery(self) -> Iterator[Event]:
        if self.turn.attempts > self._attempts:
            self._attempts = self.turn.attempts
            yield Event(now(), "reconcile", "finds that the claim has ended without a renewal, and frees the turn")

    def _claim(self) -> Iterator[Event]:
        if self.turn.claimed_by and self.turn.claimed_at and self.turn.claimed_at != self._claimed_at:
            self._claimed_at = self.turn.claimed_at
            self.claims.append(pid_of(self.turn.claimed_by))
            yield Event(self.turn.claimed_at, self.worker, "claims the turn")

    def _start_of(self, execution: ToolExecution) -> Iterator[Event]:
        before, self._starts[execution.pk] = self._starts.get(execution.pk), execution.started_at
        if execution.started_at and execution.started_at != before:
            again = " again, with the same key" if before else ""
            what = f"calls {execution.tool_name} ({recovery_of(execution)}){again}"
            yield Event(execution.started_at, self.worker, what)

    def _message(self, message: Message) -> Iterator[Event]:
        self._sequence = message.sequence
        who = {"user": "customer", "assistant": "model"}.get(message.role, self.worker)
        for part in message.content:
            if what := _part(message.role, part):
                yield Event(message.created_at, who, what)


def _part(role: str, part: dict[str, Any]) -> str:
    match part["type"]:
        case "text":
            return f"{'writes' if role == 'user' else 'answers'}: {short(part['text'])}"
        case "tool_call":
            return f"asks for {part['name']} {short(part['arguments'])}"
        case "tool_result":
            return f"stores the {'error' if part['error'] else 'result'}: {short(part['text'])}"
    return ""


def short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHORT else f"{line[: _SHORT - 1]}…"


def pid_of(claimed_by: str) -> int:
    """The process that a claim names: `host:pid:slot`."""
    return int(claimed_by.rsplit(":", 2)[1])


def recovery_of(execution: ToolExecution) -> str:
    tool = get_agent(execution.turn.agent_name).tool_named(execution.tool_name)
    return tool.recovery if tool else "no such tool"


def now() -> datetime:
    """The database's clock, by which the rows are dated too."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
    return moment
