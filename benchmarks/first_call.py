"""Each worker notes its first model call: there its start-up ends and the measured time begins."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

VARIABLE = "BENCHMARK_FIRST_CALLS"
"""Names the folder of the notes in the environment of a worker."""


@dataclass(frozen=True, slots=True)
class FirstCall:
    """What one worker noted.

    Attributes:
        at: Seconds since the epoch.
        cpu_seconds: What the process had used by then, for its imports and its first look at the queue.
    """

    at: float
    cpu_seconds: float


@cache  # once a process
def note() -> None:
    """Note the moment, if this is the first call of this process."""
    folder = os.environ.get(VARIABLE)
    if folder is None:
        return
    path = Path(folder, str(os.getpid()))
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps([time.time(), time.process_time()]))
    unfinished.rename(path)


def noted(folder: Path) -> dict[int, FirstCall]:
    """The notes so far, by process id."""
    return {int(path.name): FirstCall(*json.loads(path.read_text())) for path in folder.iterdir() if not path.suffix}
