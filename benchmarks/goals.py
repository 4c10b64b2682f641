"""What the project wants to reach at least; the common worker process is measured against it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from benchmarks.figures import Figure, Result, chosen, cpu_ms, p50, pairs, percentile, rate

Measured = Callable[[list[Result]], float | None]


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure and its bound.

    Attributes:
        is_least: Whether `must` is the least that is good enough; otherwise the most.
        measured: The figure; None if the run did not measure it.
    """

    what: str
    must: float
    measured: Measured
    is_least: bool = False
    unit: str = ""

    def is_reached(self, value: float) -> bool:
        return value >= self.must if self.is_least else value <= self.must


def _of_pairs(peer: str, figure: Figure, **wanted: object) -> Measured:
    return lambda results: _median(pairs(results, peer, figure, **wanted))


def _of_ours(figure: Figure, **wanted: object) -> Measured:
    return lambda results: _median([figure(result) for result in chosen(results, system="turnkit", **wanted)])


def _tail(results: list[Result]) -> float | None:
    samples = [sample for result in chosen(results, system="turnkit", kind="one") for sample in result["samples_ms"]]
    return percentile(samples, 0.99) / percentile(samples, 0.5) if samples else None


def _median(values: list[float]) -> float | None:
    return median(values) if values else None


_TWO = {"kind": "backlog", "workers": 2}

GOALS = (
    Goal("turns per second to DBOS, 2 workers", 4, _of_pairs("dbos", rate, **_TWO), is_least=True),
    Goal("CPU of a turn to DBOS, 2 workers", 0.25, _of_pairs("dbos", cpu_ms, **_TWO)),
    Goal("p50 to a no-op job of RQ", 2.5, _of_pairs("rq", p50, kind="one")),
    Goal("p50 to DBOS, polled every 50 ms", 0.2, _of_pairs("dbos", p50, kind="one")),
    Goal("p99 to p50", 3, _tail),
    Goal(
        "write transactions of a turn, its submission included",
        5,
        # To a tenth: what else the cluster does, such as autovacuum, takes one now and then.
        _of_ours(lambda result: round(float(result["write_transactions"]), 1), kind="backlog", workers=1),
    ),
    Goal(
        "round trips of the worker for a turn of a backlog",
        8,
        _of_ours(lambda result: float(result["backlog"]["round_trips"]), kind="wire"),
    ),
    Goal(
        "WAL of a turn", 8, _of_ours(lambda result: result["wal_bytes"] / 1000, kind="backlog", workers=1), unit=" kB"
    ),
    Goal("connections of a worker", 4, _of_ours(lambda result: result["connections"] / 2, **_TWO)),
    Goal("RSS of a worker without litellm", 75, _of_ours(lambda result: result["rss_mb"] / 2, **_TWO), unit=" MB"),
)
