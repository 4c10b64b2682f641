"""Statistics of the results: medians, percentiles and ratios of what was measured in the same round."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

Result = dict[str, Any]
Figure = Callable[[Result], float]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed.

    Raises:
        ValueError: If there are no values.
    """
    if not values:
        raise ValueError("expected at least one value to take a percentile of, got none")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def spread(values: Iterable[float]) -> tuple[float, float, float]:
    """Median, least and greatest.

    Raises:
        ValueError: If there are no values.
    """
    found = list(values)
    if not found:
        raise ValueError("expected at least one value to take a median of, got none")
    return median(found), min(found), max(found)


def chosen(results: Iterable[Result], **wanted: object) -> list[Result]:
    """The results with these values."""
    return [result for result in results if all(result.get(name) == value for name, value in wanted.items())]


def pairs(results: Sequence[Result], peer: str, figure: Figure, **wanted: object) -> list[float]:
    """The figure of turnkit's result to that of the peer's, for each round that has both.

    A figure of nothing, such as the processor time of very little work, is no divisor.
    """
    divisors = {result["round"]: figure(result) for result in chosen(results, system=peer, **wanted)}
    ours = chosen(results, system="turnkit", **wanted)
    return [figure(result) / divisors[result["round"]] for result in ours if divisors.get(result["round"], 0) > 0]


def rate(result: Result) -> float:
    """Pieces of work a second."""
    return float(result["per_second"])


def cpu_ms(result: Result) -> float:
    """Of the workers and of PostgreSQL, for a piece of work."""
    return float(result["client_cpu_ms"] + result["postgres_cpu_ms"])


def p50(result: Result) -> float:
    """Milliseconds from submission to end."""
    return percentile(result["samples_ms"], 0.5)
