from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Check:
    """A claim of the demo, whether it holds, and what shows that."""

    claim: str
    evidence: str
    holds: bool = field(kw_only=True)

    def row(self) -> list[str]:
        return ["ok" if self.holds else "FAILED", self.claim, self.evidence]


class DemoError(Exception):
    """The demo cannot go on.

    Args:
        message: One sentence for a person.
        log: The end of the log that explains it, or empty.
    """

    def __init__(self, message: str, *, log: str = "") -> None:
        super().__init__(message)
        self.log = log
