"""One soak, from empty tables to the report."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from django import db

from benchmarks.soak.counts import counts
from benchmarks.soak.faults import Faults
from benchmarks.soak.fleet import Fleet
from benchmarks.soak.load import Ledger, Load
from benchmarks.soak.model import answer
from benchmarks.soak.rules import RULES
from benchmarks.soak.servers import Postgres, versions
from turnkit_django.models import Delivery, Turn
from turnkit_django.testing import assert_clean, drain, model_server
from turnkit_django.testing.servers import Servers

_BACKLOG = 40
"""Unfinished turns at any time, in a small run fewer: both workers have work, and there are turns to wait for."""
_LOOK_SECONDS = 0.05
_TELL_SECONDS = 15.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked for.

    Attributes:
        turns: At least so many, of all kinds.
        flushes: How often the queue is emptied.
        seconds: After so many the load ends, and what has not ended counts as broken.
    """

    turns: int
    seed: int
    flushes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """What came of it.

    Attributes:
        servers: Their versions.
        seconds: From the start of the workers until nothing was due.
        faults: What went wrong on purpose, by name.
        counts: What is in the database, by name.
        broken: By rule, what breaks it; nothing where it holds.
    """

    plan: Plan
    servers: str
    seconds: float
    faults: dict[str, int]
    counts: dict[str, int]
    broken: dict[str, list[str]]


def run(plan: Plan, servers: Servers, say: Say) -> Report:
    """Load, faults, quiet, and the rules."""
    ledger = Ledger()
    load = Load(f"load {plan.seed}", ledger)
    with _postgres(servers) as postgres, model_server(answer) as model, _fleet(model.base_url) as fleet:
        begun = time.monotonic()
        faults = _faults(plan, servers, fleet, postgres, load, say)
        _load(plan, load, faults, say, end=begun + plan.seconds)
        is_quiet = _calm_down(load, fleet, say, end=begun + plan.seconds)
        seconds = time.monotonic() - begun
        fleet.stop()
        if is_quiet:
            drain()  # what maintenance finds still
        found = {rule: list(broken(ledger)) for rule, broken in RULES.items()}
        found["the database is clean"] = _unclean(model)
        found["no deadlock"] = ["PostgreSQL has seen one"] * postgres.deadlocks()
        found["no process ended by itself"] = fleet.deaths
        found["every fault happened"] = list(faults.missing())
        return Report(plan, versions(servers.redis_url), seconds, faults.counts(), counts(ledger), found)


@contextmanager
def _postgres(servers: Servers) -> Iterator[Postgres]:
    postgres = Postgres(servers.database_url)
    try:
        yield postgres
    finally:
        db.connection.close()
        db.connection.close_pool()
        postgres.stop()


@contextmanager
def _fleet(model_url: str) -> Iterator[Fleet]:
    with TemporaryDirectory(prefix="soak-") as folder:
        fleet = Fleet(Path(folder), {"SOAK_MODEL": model_url})
        try:
            fleet.start()
            yield fleet
        finally:
            fleet.stop()


def _faults(plan: Plan, servers: Servers, fleet: Fleet, postgres: Postgres, load: Load, say: Say) -> Faults:
    def is_holder(pid: int) -> bool:
        held = Turn.objects.filter(status="running", claimed_by__contains=f":{pid}:")
        return load.insist(held.exists)

    return Faults(
        seed=f"faults {plan.seed}",
        fleet=fleet,
        postgres=postgres,
        redis_url=servers.redis_url,
        flushes_at=[plan.turns * number // (plan.flushes + 1) for number in range(1, plan.flushes + 1)],
        restart_at=plan.turns * 3 // 5,
        is_holder=is_holder,
        say=say,
    )


def _load(plan: Plan, load: Load, faults: Faults, say: Say, *, end: float) -> None:
    """Keep the workers busy, and disturb them, until there are as many turns as planned."""
    tell_at = 0.0
    backlog = min(_BACKLOG, plan.turns // 4)
    while (turns := load.insist(Turn.objects.count)) < plan.turns and time.monotonic() < end:
        faults.act(turns)
        faults.fleet.look()
        if time.monotonic() > tell_at:
            say(f"{turns} turns, {faults.kills} kills")
            tell_at = time.monotonic() + _TELL_SECONDS
        if load.insist(Turn.objects.unfinished().count) < backlog:
            load.act()
        else:
            threading.Event().wait(_LOOK_SECONDS)


def _calm_down(load: Load, fleet: Fleet, say: Say, *, end: float) -> bool:
    """No more load and no more faults: the workers do what is left. Whether they have."""
    say("the load has ended; waiting until nothing is due")
    unread = Delivery.objects.filter(request_id="")
    while load.insist(lambda: Turn.objects.unfinished().exists() or unread.exists()):
        if time.monotonic() > end:
            return False
        fleet.look()
        threading.Event().wait(_LOOK_SECONDS)
    return True


def _unclean(model: Any) -> list[str]:
    try:
        assert_clean(model=model)
    except AssertionError as problem:
        return str(problem).splitlines()
    return []
