"""The processes that are killed: ordinary workers and loops of maintenance."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import processes

WORKERS = range(2)
LOOPS = range(2, 4)
_TAIL = 2000


@dataclass(frozen=True, slots=True)
class _Member:
    number: int
    popen: subprocess.Popen[bytes]


@dataclass
class Fleet:
    """Two workers and two loops of maintenance, each replaced when it has died.

    Attributes:
        deaths: Of those that nobody had killed: which, and the end of its log.
    """

    folder: Path
    environment: Mapping[str, str]
    deaths: list[str] = field(default_factory=list)
    _members: list[_Member] = field(default_factory=list)
    _count: int = 0

    def start(self) -> None:
        (self.folder / "calls").mkdir()
        self._members = [self._started(place) for place in (*WORKERS, *LOOPS)]

    def kill(self, place: int) -> int:
        """SIGKILL to the process at that place, and another one in its stead; the id of the killed one."""
        popen = self._members[place].popen
        popen.kill()
        self._replace(place)
        return popen.pid

    def look(self) -> None:
        """Note and replace those that have ended by themselves."""
        for place, member in enumerate(self._members):
            if (status := member.popen.poll()) is not None:
                said = (self.folder / f"{member.number}.log").read_text(errors="replace")[-_TAIL:]
                self.deaths.append(f"process {member.popen.pid} at place {place} ended with {status}:\n{said}")
                self._replace(place)

    def stop(self) -> None:
        processes.stop([member.popen for member in self._members])

    def _replace(self, place: int) -> None:
        popen = self._members[place].popen
        popen.wait()
        if popen.stdin:
            popen.stdin.close()
        self._members[place] = self._started(place)

    def _started(self, place: int) -> _Member:
        self._count += 1
        role = "soak" if place in WORKERS else "soak_maintenance"
        return _Member(self._count, processes.start(role, self._count, self.folder, self.environment))
