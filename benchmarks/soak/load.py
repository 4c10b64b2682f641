"""The application of the soak: it submits tasks and sends messages, and keeps a ledger of what it did.

Each act has a key or changes nothing when it is repeated, so one whose commit was not heard is simply repeated.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from django import db

from benchmarks.soak.agents import boss
from turnkit_django.errors import StateError
from turnkit_django.models import Conversation, Turn

T = TypeVar("T")

_LANES = 12
_LONGEST_LANE = 15
"""Turns of a conversation before another one takes its place: requests hold all that was said."""
_MOST_TARGETS = 2
_PATIENCE_SECONDS = 60.0
WEIGHTS = {
    "plain": 2, "safe": 3, "unsafe": 3, "both": 2, "delegate": 3, "tree": 2, "launch": 3, "callback": 2, "tell": 3,
    "risk": 1, "join": 3, "told": 2, "post": 2, "send": 2,
}  # fmt: skip
"""How often each kind of act is drawn, beside the others."""


@dataclass
class Ledger:
    """What was submitted and sent.

    Attributes:
        tasks: The kind of each task, by its number, which is the key of its turn.
        told: The numbers of those whose end is told to another conversation.
        messages: The numbers of the application's messages, which are their keys.
        refused_waits: How many joins were refused, as they would have closed a cycle.
        repeated: How many acts were repeated because the database was lost.
    """

    tasks: dict[int, str] = field(default_factory=dict)
    told: set[int] = field(default_factory=set)
    messages: set[int] = field(default_factory=set)
    refused_waits: int = 0
    repeated: int = 0

    def numbers(self, kinds: frozenset[str]) -> set[int]:
        return {number for number, kind in self.tasks.items() if kind in kinds}


@dataclass
class _Lane:
    conversation: Conversation
    count: int = 0


class Load:
    """Acts of an application, one at a time, drawn by chance."""

    def __init__(self, seed: str, ledger: Ledger) -> None:
        self._chance = random.Random(seed)  # noqa: S311  a repeatable choice, hides nothing
        self._ledger = ledger
        self._lanes: list[_Lane] = []
        self._number = 0

    def act(self) -> None:
        """Submit a task or send a message, of a kind drawn by chance."""
        (kind,) = self._chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        self.do(kind)

    def do(self, kind: str) -> None:
        self._number += 1
        lane, other = self._two_lanes()
        match kind:
            case "post" | "send":
                self._ledger.messages.add(self._number)
                self._message(lane, lane if kind == "post" else other)
            case "join":
                self._ledger.tasks[self._number] = "plain"
                self._join(lane)
            case "told":
                self._ledger.tasks[self._number] = "plain"
                self._ledger.told.add(self._number)
                self._submit(lane, "plain", callback=other)
            case "tell":
                self._ledger.tasks[self._number] = kind
                self._submit(lane, kind, to=f" {other.pk}")
            case _:
                self._ledger.tasks[self._number] = kind
                self._submit(lane, kind)

    def _submit(self, lane: Conversation, kind: str, *, to: str = "", callback: Conversation | None = None) -> None:
        task, key = f"{kind} {self._number}{to}", str(self._number)
        self.insist(lambda: lane.submit(task, key=key, callback=callback))

    def _message(self, source: Conversation, destination: Conversation) -> None:
        self.insist(lambda: source.send(destination, f"note {self._number}", key=str(self._number)))

    def _join(self, lane: Conversation) -> None:
        turn = self.insist(lambda: lane.prepare(f"plain {self._number}", key=str(self._number)))
        elsewhere = Turn.objects.unfinished().submitted().exclude(conversation=lane).order_by("pk")
        targets = self.insist(lambda: list(elsewhere.values_list("pk", flat=True)))
        chosen = self._chance.sample(targets, min(_MOST_TARGETS, len(targets)))
        if chosen:
            try:
                self.insist(lambda: turn.wait_for(*chosen))
            except StateError:
                self._ledger.refused_waits += 1
        self.insist(turn.submit)

    def _two_lanes(self) -> tuple[Conversation, Conversation]:
        while len(self._lanes) < _LANES:
            self._lanes.append(_Lane(self.insist(boss.conversation)))
        lane, other = self._chance.sample(self._lanes, 2)
        lane.count += 1
        if lane.count >= _LONGEST_LANE:
            self._lanes.remove(lane)
        return lane.conversation, other.conversation

    def insist(self, act: Callable[[], T]) -> T:
        """Repeat what the loss of the database has cut off."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return act()
            except db.Error:
                if time.monotonic() > end:
                    raise
                self._ledger.repeated += 1
                db.connection.close()
                threading.Event().wait(0.1)
