"""The report as Markdown."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata

import psutil

from benchmarks.soak.run import Report

_PACKAGES = ("django", "psycopg", "rq", "redis")
_MOST_SHOWN = 20


def text(report: Report) -> str:
    """Conditions, faults, counts, and each rule with `ok` or what breaks it."""
    return "\n".join(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in _PACKAGES)
    yield f"- Seed {report.plan.seed}, {datetime.now(UTC).date().isoformat()}, {report.seconds / 60:.1f} minutes."
    yield (
        f"- {os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB, "
        f"{platform.system()} {platform.release().partition('-')[0]}, {platform.machine()}; "
        f"Python {platform.python_version()}; {report.servers}, {versions}."
    )
    for title, figures in (("fault", report.faults), ("count", report.counts)):
        yield from ("", f"| {title} | |", "| --- | ---: |")
        yield from (f"| {name} | {count} |" for name, count in figures.items())
    yield from ("", "| rule | |", "| --- | --- |")
    yield from (f"| {rule} | {'**broken**' if broken else 'ok'} |" for rule, broken in report.broken.items())
    for rule, broken in report.broken.items():
        if broken:
            yield from ("", f"{rule}: {len(broken)} times", "", *(f"- {problem}" for problem in broken[:_MOST_SHOWN]))
