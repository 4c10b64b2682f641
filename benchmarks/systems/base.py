"""What a measurement asks of a system."""

from __future__ import annotations

from typing import ClassVar, Protocol


class WrongWork(Exception):
    """A system did something else than the measured work, so that its figures mean nothing."""


def require(system: str, *, expected: object, found: object) -> None:
    """Refuse figures of work that was not done.

    Raises:
        WrongWork: If what was found is not what was expected.
    """
    if found != expected:
        raise WrongWork(f"{system}: expected the work to leave {expected}, found {found}: its figures mean nothing")


class System(Protocol):
    """One of the compared systems. Each measurement calls `start`, then the others, then `stop`.

    Attributes:
        name: Also that of its module in `benchmarks.workers`.
        title: As the table calls it.
        unit: What one piece of its work is.
        has_database: Whether its workers use PostgreSQL.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    unit: ClassVar[str]
    has_database: ClassVar[bool]

    def prepare(self) -> None:
        """Once, before all: make the schema of its database."""

    def start(self) -> None:
        """Forget all earlier work."""

    def stop(self) -> None:
        """Let go of the database."""

    def submit(self) -> str:
        """Hand one piece of work to the workers, durably where the system knows that; its id."""
        ...

    def done(self) -> int:
        """How much work has ended since `start`."""
        ...

    def is_done(self, work_id: str) -> bool: ...

    def is_idle(self) -> bool:
        """Whether the workers have nothing left to do, tidying included."""
        ...

    def verify(self, count: int) -> None:
        """Look whether exactly `count` pieces of work were done, each with all its parts.

        Raises:
            WrongWork: If not.
        """

    def settings(self) -> dict[str, str]:
        """What a reader has to know of how it was set up."""
        ...
