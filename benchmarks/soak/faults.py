"""What goes wrong, and when: drawn by chance from the seed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from benchmarks.soak.fleet import LOOPS, WORKERS, Fleet
from benchmarks.soak.servers import Postgres, flush

KILL_SECONDS = 2.0
"""Between two kills, on average."""
_LOOP_SHARE = 0.2
"""So many kills take a loop of maintenance along."""


@dataclass
class Faults:
    """The faults of one run.

    Attributes:
        flushes_at: The numbers of turns at which the queue is emptied.
        restart_at: The number of turns at which PostgreSQL is restarted.
        is_holder: Whether the process of that id, dead now, had a claim.
    """

    seed: str
    fleet: Fleet
    postgres: Postgres
    redis_url: str
    flushes_at: list[int]
    restart_at: int
    is_holder: Callable[[int], bool]
    say: Callable[[str], None]
    kills: int = 0
    kills_of_holders: int = 0
    kills_of_loops: int = 0
    flushes: int = 0
    restarts: int = 0
    _chance: random.Random = field(init=False)
    _kill_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)  # noqa: S311  a repeatable choice, hides nothing
        self._kill_at = self._next_kill()

    def act(self, turns: int) -> None:
        """Whatever is due at this moment, with so many turns in the database."""
        if time.monotonic() >= self._kill_at:
            self._kill()
        if self.flushes < len(self.flushes_at) and turns >= self.flushes_at[self.flushes]:
            self.flushes += 1
            flush(self.redis_url)
            self.say(f"emptied Valkey at {turns} turns")
        if not self.restarts and turns >= self.restart_at:
            self.restarts += 1
            self.postgres.restart()
            self.say(f"restarting PostgreSQL at {turns} turns")

    def counts(self) -> dict[str, int]:
        """How often each happened."""
        return {
            "kills of a worker": self.kills,
            "of them while it had a claim": self.kills_of_holders,
            "kills of a loop of maintenance": self.kills_of_loops,
            "times that Valkey was emptied": self.flushes,
            "restarts of PostgreSQL": self.restarts,
        }

    def missing(self) -> Iterator[str]:
        """Faults that were planned and did not happen."""
        if not self.kills:
            yield "no worker was killed"
        if self.flushes < len(self.flushes_at):
            yield f"Valkey was emptied {self.flushes} times, planned: {len(self.flushes_at)}"
        if not self.postgres.is_restarted:
            yield "PostgreSQL was not restarted"

    def _kill(self) -> None:
        self.kills += 1
        self.kills_of_holders += self.is_holder(self.fleet.kill(self._chance.choice(WORKERS)))
        if self._chance.random() < _LOOP_SHARE:
            self.kills_of_loops += 1
            self.fleet.kill(self._chance.choice(LOOPS))
        self._kill_at = self._next_kill()

    def _next_kill(self) -> float:
        return time.monotonic() + KILL_SECONDS * self._chance.uniform(0.5, 1.5)
