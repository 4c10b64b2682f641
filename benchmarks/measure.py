"""The three measurements: a backlog worked off, one piece at a time, and what goes over the wire meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from benchmarks import load, processes
from benchmarks.postgres import Cluster
from benchmarks.processes import Workers
from benchmarks.systems.base import System
from benchmarks.wire import Traffic, Wire, open_wire

Result = dict[str, Any]

_START_SECONDS = 60.0
_WORK_SECONDS = 120.0
_FIRST_LOOK = 0.005
_BACKLOG_LOOK = 0.02
_ONE_LOOK = 0.001
_WARM_UP = 5
_GAP_SECONDS = 0.01


@contextmanager
def _started(system: System) -> Iterator[None]:
    system.start()
    try:
        yield
    finally:
        system.stop()


def backlog(system: System, cluster: Cluster, *, count: int, workers: int) -> Result:
    """Submit `count` pieces, then start the workers: rates and costs from the first model call to the last end."""
    with _started(system):
        before = cluster.counters()
        for _ in range(count):
            system.submit()
        others = cluster.backends()
        with processes.running(system.name, workers, {"DATABASE_URL": cluster.url()}) as running:
            result = _worked_off(system, cluster, running, count=count)
            result["connections"] = len(cluster.backends() - others)
            spent = cluster.counters() - before
            result["left_over_cpu_ms"] = _until_idle(system, running) / count
        system.verify(count)
    per_piece = {name: value / count for name, value in asdict(spent).items()}
    return {"kind": "backlog", "system": system.name, "workers": workers, "count": count} | result | per_piece


def _worked_off(system: System, cluster: Cluster, running: Workers, *, count: int) -> Result:
    running.wait_until("the first call", lambda: bool(running.first_calls), seconds=_START_SECONDS, pause=_FIRST_LOOK)
    postgres_seconds, foreign = cluster.cpu_seconds(), _Foreign()
    running.wait_until("all is done", lambda: system.done() >= count, seconds=_WORK_SECONDS, pause=_BACKLOG_LOOK)
    seconds = time.time() - min(call.at for call in running.first_calls.values())
    return {
        "per_second": count / seconds,
        "seconds": seconds,
        "client_cpu_ms": 1000 * running.cpu_seconds() / count,
        "postgres_cpu_ms": 1000 * (cluster.cpu_seconds() - postgres_seconds) / count,
        "foreign_cores": foreign.cores(),
        "rss_mb": running.rss_bytes() / 1e6,
        "working": len(running.first_calls),
    }


def _until_idle(system: System, running: Workers) -> float:
    """Milliseconds that the workers use after their last piece, for instance on wake-ups that come too late."""
    before = running.cpu_seconds()
    running.wait_until("all are idle", system.is_idle, seconds=_WORK_SECONDS, pause=_BACKLOG_LOOK)
    return 1000 * (running.cpu_seconds() - before)


def one_at_a_time(system: System, cluster: Cluster, *, count: int) -> Result:
    """Submit a piece, wait for its end, again and again: milliseconds of each, with one worker that is idle before."""
    with _started(system), processes.running(system.name, 1, {"DATABASE_URL": cluster.url()}) as running:
        for _ in range(_WARM_UP):
            _one(system, running)
        cpu, foreign = running.cpu_seconds(), _Foreign()
        samples = [_one(system, running) for _ in range(count)]
        result = {"foreign_cores": foreign.cores(), "client_cpu_ms": 1000 * (running.cpu_seconds() - cpu) / count}
        system.verify(_WARM_UP + count)
    return {"kind": "one", "system": system.name, "count": count, "samples_ms": samples} | result


def _one(system: System, running: Workers) -> float:
    """Milliseconds from before the submission until the end is seen."""
    start = time.perf_counter()
    work_id = system.submit()
    running.wait_until("it is done", lambda: system.is_done(work_id), seconds=_START_SECONDS, pause=_ONE_LOOK)
    milliseconds = 1000 * (time.perf_counter() - start)
    running.wait_until("it is idle", system.is_idle, seconds=_START_SECONDS, pause=_ONE_LOOK)
    time.sleep(_GAP_SECONDS)
    return milliseconds


def over_the_wire(system: System, cluster: Cluster, *, count: int) -> Result:
    """What one worker says to PostgreSQL for each piece: out of a backlog, and one at a time."""
    with open_wire(cluster.folder) as wire:
        few, many = (_backlog_traffic(system, cluster, wire, count=times * count) for times in (1, 3))
        in_backlog = _per_piece(many - few, 2 * count)
        one = _per_piece(_single_traffic(system, cluster, wire, count=count), count)
    return {"kind": "wire", "system": system.name, "count": count, "backlog": in_backlog, "one": one}


def _backlog_traffic(system: System, cluster: Cluster, wire: Wire, *, count: int) -> Traffic:
    with _started(system):
        for _ in range(count):
            system.submit()
        before = wire.traffic
        with processes.running(system.name, 1, {"DATABASE_URL": cluster.url(folder=wire.folder)}) as running:
            running.wait_until(
                "all is done", lambda: system.done() >= count, seconds=_WORK_SECONDS, pause=_BACKLOG_LOOK
            )
            return wire.traffic - before


def _single_traffic(system: System, cluster: Cluster, wire: Wire, *, count: int) -> Traffic:
    environment = {"DATABASE_URL": cluster.url(folder=wire.folder)}
    with _started(system), processes.running(system.name, 1, environment) as running:
        for _ in range(_WARM_UP):
            _one(system, running)
        before = wire.traffic
        for _ in range(count):
            _one(system, running)
        return wire.traffic - before


def _per_piece(traffic: Traffic, count: int) -> dict[str, float]:
    return {name: value / count for name, value in asdict(traffic).items()}


class _Foreign:
    """Cores that other programs use from now on."""

    def __init__(self) -> None:
        self._at, self._seconds = time.monotonic(), self._foreign_seconds()

    @staticmethod
    def _foreign_seconds() -> float:
        return load.busy_seconds() - load.own_seconds()

    def cores(self) -> float:
        return max(0.0, (self._foreign_seconds() - self._seconds) / (time.monotonic() - self._at))
