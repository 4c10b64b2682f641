"""Who uses the processor: a tree of processes, and everybody."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

import psutil


def tree_seconds(root: psutil.Process, *, without: Collection[int] = ()) -> float:
    """Processor seconds of a process, its living descendants and those it has outlived.

    Args:
        without: Process ids that do not count.
    """
    seconds = 0.0
    for process in (root, *root.children(recursive=True)):
        if process.pid not in without:
            with suppress(psutil.Error):  # it has just ended: its parent counts it from now on
                times = process.cpu_times()
                seconds += times.user + times.system + times.children_user + times.children_system
    return seconds


def busy_seconds() -> float:
    """Processor seconds of the whole machine, since it was started."""
    times = psutil.cpu_times()
    return sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal"))


def own_seconds() -> float:
    """Processor seconds of this benchmark: its servers and workers included."""
    return tree_seconds(psutil.Process())
