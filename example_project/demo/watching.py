"""Watches one turn from outside, by its rows, and tells what it sees."""

from __future__ import annotations

from collections.abc import Callable
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
    _tools: dict[str, tuple[str, datetime | None]] = field(default_factory=dict)

    def look(self) -> Watcher:
        """Read the rows and tell what is new; itself."""
        self.turn = Turn.objects.get(pk=self.turn.pk)
        self._see_recovery()
        self._see_claim()
        for execution in self.turn.tool_executions.order_by("ordinal"):
            self._see_tool(execution)
        for message in self.turn.messages.filter(sequence__gt=self._sequence).order_by("sequence"):
            self._see_message(message)
        return self

    def note(self, at: datetime | None, who: str, what: str) -> None:
        self.events.append(Event(at or now(), who, what))
        self.tell(f"{who}: {what}")

    @property
    def worker(self) -> str:
        return f"process {self.claims[-1]}" if self.claims else "a worker"

    def running_tool(self) -> ToolExecution | None:
        return self.turn.tool_executions.filter(status=ToolExecution.Status.RUNNING).first()

    def _see_recovery(self) -> None:
        if self.turn.attempts > self._attempts:
            self._attempts = self.turn.attempts
            self.note(None, "reconcile", "saw that the claim was not renewed any more and freed the turn")

    def _see_claim(self) -> None:
        if self.turn.claimed_by and self.turn.claimed_at != self._claimed_at:
            self._claimed_at = self.turn.claimed_at
            self.claims.append(pid_of(self.turn.claimed_by))
            self.note(self.turn.claimed_at, self.worker, "claims the turn")

    def _see_tool(self, execution: ToolExecution) -> None:
        state = (execution.status, execution.started_at)
        if self._tools.get(execution.pk) == state:
            return
        is_new_start = execution.started_at and execution.started_at != self._tools.get(execution.pk, ("", None))[1]
        self._tools[execution.pk] = state
        if is_new_start:
            recovery = recovery_of(execution)
            self.note(execution.started_at, self.worker, f"calls the tool {execution.tool_name} ({recovery})")

    def _see_message(self, message: Message) -> None:
        self._sequence = message.sequence
        for part in message.content:
            if what := _part(message.role, part):
                who = "customer" if message.role == "user" else "model" if message.role == "assistant" else self.worker
                self.note(message.created_at, who, what)


def _part(role: str, part: dict[str, Any]) -> str:
    match part["type"]:
        case "text":
            return f"{'writes' if role == 'user' else 'answers'}: {short(part['text'])}"
        case "tool_call":
            return f"asks for {part['name']} {short(part['arguments'])}"
        case "tool_result":
            return f"stores the tool's {'error' if part['error'] else 'result'}: {short(part['text'])}"
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
