"""The results as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.figures import Result, chosen, cpu_ms, p50, pairs, percentile, rate, spread
from benchmarks.goals import GOALS, Goal

BEGIN, END = "<!-- measured: python -m benchmarks table -->", "<!-- end of measured -->"
NOISY_CORES = 0.5
"""Rows of which the median of foreign load is above it are marked; wall times then say little."""

Row = Sequence[str]
Columns = tuple[tuple[str, Callable[[list[Result]], str]], ...]


class PageError(Exception):
    """The page has no place for tables."""


def put_into(page: str, text: str) -> str:
    """The page with its tables replaced.

    Raises:
        PageError: It lacks the two comments that the tables stand between.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise PageError(f"expected the lines {BEGIN!r} and {END!r}; put them where the tables shall stand")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def tables(measured: dict[str, Any]) -> str:
    """All tables of a run, with its conditions."""
    conditions, results = measured["conditions"], measured["results"]
    titles = {name: system["title"] for name, system in conditions["systems"].items()}
    parts = [
        _conditions(conditions),
        "### A backlog worked off",
        _backlog(results, titles),
        "### One at a time",
        _single(results, titles),
    ]
    if chosen(results, kind="wire"):
        parts += ["### On the wire", _wire(results, titles)]
    if {"turnkit", "dbos"} <= set(titles) or {"turnkit", "rq"} <= set(titles):
        parts += ["### Ratios within a round", _ratios(results, titles)]
    if reached := [_goal(goal, value) for goal in GOALS if (value := goal.measured(results)) is not None]:
        parts += ["### Against the goals", _markdown(("goal", "bound", "measured", "reached"), reached)]
    return "\n\n".join(parts)


def _conditions(found: dict[str, Any]) -> str:
    plan = found["plan"]
    packages = ", ".join(f"{name} {version}" for name, version in found["packages"].items())
    postgres = ", ".join(f"{name} {value}" for name, value in found["postgres"].items() if name != "server_version")
    lines = [
        f"Measured {found['date']} on {found['cores']} cores, {found['memory_gib']} GiB, {found['system']}; "
        f"Python {found['python']}. Rounds: {plan['rounds']}; backlog: {plan['turns']} turns, {plan['jobs']} jobs; "
        f"one at a time: {plan['single']}.",
        f"PostgreSQL {found['postgres']['server_version']} ({postgres}), Valkey {found['valkey']}; {packages}.",
        *(f"{found['systems'][name]['title']}: {_said(settings)}." for name, settings in found["settings"].items()),
    ]
    return "\n".join(f"- {line}" for line in lines)


def _said(settings: dict[str, str]) -> str:
    return "; ".join(f"{name} {value}" for name, value in settings.items())


_BACKLOG: Columns = (
    ("per second", lambda found: _range(found, "per_second", ".0f")),
    ("client CPU ms", lambda found: _median(found, "client_cpu_ms")),
    ("PostgreSQL CPU ms", lambda found: _median(found, "postgres_cpu_ms")),
    ("left-over CPU ms", lambda found: _median(found, "left_over_cpu_ms")),
    ("write transactions", lambda found: _median(found, "write_transactions")),
    ("WAL kB", lambda found: _median(found, "wal_bytes", scale=1000)),
    ("RSS MB", lambda found: _median(found, "rss_mb", form=".0f")),
    ("connections", lambda found: _median(found, "connections", form=".0f")),
    ("foreign cores", lambda found: _median(found, "foreign_cores", form=".2f")),
)
_SINGLE: Columns = (
    ("p50 ms", lambda found: _shown(spread(p50(result) for result in found), ".1f")),
    ("p99 ms", lambda found: f"{percentile(_samples(found), 0.99):.1f}"),
    ("least ms", lambda found: f"{min(_samples(found)):.1f}"),
    ("worker CPU ms", lambda found: _median(found, "client_cpu_ms")),
    ("foreign cores", lambda found: _median(found, "foreign_cores", form=".2f")),
)


def _backlog(results: list[Result], titles: dict[str, str]) -> str:
    rows = []
    for name, title in titles.items():
        for workers in _worker_counts(results):
            found = chosen(results, kind="backlog", system=name, workers=workers)
            rows.append([title + _mark(found), str(workers), *(show(found) for _, show in _BACKLOG)])
    return _markdown(["system", "workers", *(head for head, _ in _BACKLOG)], rows)


def _single(results: list[Result], titles: dict[str, str]) -> str:
    rows = []
    for name, title in titles.items():
        found = chosen(results, kind="one", system=name)
        rows.append([title + _mark(found), *(show(found) for _, show in _SINGLE)])
    return _markdown(["system", *(head for head, _ in _SINGLE)], rows)


def _worker_counts(results: list[Result]) -> list[int]:
    return sorted({result["workers"] for result in chosen(results, kind="backlog")})


def _samples(found: list[Result]) -> list[float]:
    return [sample for result in found for sample in result["samples_ms"]]


def _wire(results: list[Result], titles: dict[str, str]) -> str:
    head = ("system", "taken from", "round trips", "statements", "of them BEGIN, COMMIT", "transactions")
    rows = [
        (titles[result["system"]], said, *(f"{result[part][name]:.1f}" for name in _TRAFFIC))
        for result in chosen(results, kind="wire")
        for part, said in (("backlog", "a backlog"), ("one", "one at a time"))
    ]
    return _markdown(head, rows)


_TRAFFIC = ("round_trips", "statements", "transaction_control", "transactions")


def _ratios(results: list[Result], titles: dict[str, str]) -> str:
    rows = []
    for peer in titles.keys() - {"turnkit"}:
        found = [("p50, one at a time", pairs(results, peer, p50, kind="one"))]
        for workers in _worker_counts(results):
            for what, figure in (("per second", rate), ("CPU of client and PostgreSQL", cpu_ms)):
                values = pairs(results, peer, figure, kind="backlog", workers=workers)
                found.append((f"{what}, workers: {workers}", values))
        rows += [[what, titles[peer], _shown(spread(values), ".2f")] for what, values in found if values]
    return _markdown(["of turnkit_django", "to", "median (least to greatest)"], sorted(rows))


def _goal(goal: Goal, value: float) -> Row:
    must = f"{'≥' if goal.is_least else '≤'} {goal.must:g}{goal.unit}"
    return (goal.what, must, f"{value:.2f}{goal.unit}", "yes" if goal.is_reached(value) else "no")


def _median(found: list[Result], name: str, *, scale: float = 1, form: str = ".1f") -> str:
    return f"{spread(result[name] for result in found)[0] / scale:{form}}"


def _range(found: list[Result], name: str, form: str) -> str:
    return _shown(spread(result[name] for result in found), form)


def _shown(values: tuple[float, float, float], form: str) -> str:
    middle, least, most = values
    return f"{middle:{form}} ({least:{form}} to {most:{form}})"


def _mark(found: list[Result]) -> str:
    return " (!)" if spread(result["foreign_cores"] for result in found)[0] > NOISY_CORES else ""


def _markdown(head: Row, rows: Sequence[Row]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
