"""What `explain()` answers with: a plain value, readable as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from textwrap import wrap

from turnkit_django.core.content import Json
from turnkit_django.core.display import duration, harmless, one_line
from turnkit_django.core.reasons import Reason
from turnkit_django.core.states import TERMINAL

_WIDTH = 110


@dataclass(frozen=True, slots=True)
class Awaited:
    """One thing a turn waits for.

    Attributes:
        kind: `turn`, `tool_execution`, `approval` or `model_call`.
        id: Of the row; of the attempt for a model call.
    """

    kind: str
    id: str
    since: datetime

    def as_dict(self) -> dict[str, Json]:
        return {"kind": self.kind, "id": self.id, "since": _iso(self.since)}


@dataclass(frozen=True, slots=True)
class Hold:
    """Who holds the turn.

    Attributes:
        by: `host:pid:slot`.
    """

    by: str
    since: datetime
    lease_expires_at: datetime

    def as_dict(self) -> dict[str, Json]:
        return {"by": self.by, "since": _iso(self.since), "lease_expires_at": _iso(self.lease_expires_at)}


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that was reached, or that is counted towards.

    Attributes:
        name: The setting.
        value: What is allowed for this turn; seconds for `TIMEOUT`. None: it cannot be told from the row any more.
        used: How much of it is used.
    """

    name: str
    value: float | None
    used: float | None


@dataclass(frozen=True, slots=True)
class Descendant:
    """A turn that a call of the explained turn has started, or one below that.

    Attributes:
        depth: How many calls lie between the two, its own included.
        agent: The name of its agent.
    """

    turn: str
    parent: str | None
    depth: int
    agent: str
    status: str
    reason: Reason

    def as_dict(self) -> dict[str, Json]:
        return asdict(self) | {"reason": self.reason.value}

    def __str__(self) -> str:
        return f"{self.turn} {one_line(self.agent, limit=100)}: {self.status} ({self.reason})"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a turn stands where it stands. `str()` is for people, `as_dict()` is JSON.

    Attributes:
        turn: Its id.
        reason: A stable code.
        summary: What the code says about this turn, as the end of a sentence that begins with "it".
        since: See the table of reasons.
        since_column: The column that `since` was read from.
        now: The database's time of the look; ages are counted from it.
        attempts: How many of its workers died or failed.
        next_attempt_at: Nothing happens to the turn before that; None if no time stands in its way.
        last_error: `{type, message, details}`: why it ended, or the last trouble of a turn that goes on.
        action: One sentence: what would move it.
        retry_of: The failed turn that it tries again.
        descendants: The tree below it, depth first; of a large one, the unfinished turns before the others.
        more_descendants: How many of them are left out.
    """

    turn: str
    status: str
    reason: Reason
    summary: str
    since: datetime
    since_column: str
    now: datetime
    waiting_on: Sequence[Awaited]
    claim: Hold | None
    attempts: int
    next_attempt_at: datetime | None
    deadline_at: datetime | None
    limit: Limit | None
    last_error: dict[str, Json] | None
    action: str
    retry_of: str | None = None
    descendants: Sequence[Descendant] = ()
    more_descendants: int = 0

    def as_dict(self) -> dict[str, Json]:
        """JSON: `turn, status, reason, since, waiting_on, claim, attempts, next_attempt_at, deadline_at, limit,
        last_error, action, descendants, more_descendants`. Times are ISO 8601 in UTC with their offset; `waiting_on` is
        a list of `{kind, id, since}`, `claim` is `{by, since, lease_expires_at}` or None, `limit` is `{name, value,
        used}` or None, `descendants` is a list of `{turn, parent, depth, agent, status, reason}`.
        """
        return {
            "turn": self.turn,
            "status": self.status,
            "reason": self.reason.value,
            "since": _iso(self.since),
            "waiting_on": [each.as_dict() for each in self.waiting_on],
            "claim": self.claim.as_dict() if self.claim else None,
            "attempts": self.attempts,
            "next_attempt_at": _iso(self.next_attempt_at),
            "deadline_at": _iso(self.deadline_at),
            "limit": asdict(self.limit) if self.limit else None,
            "last_error": self.last_error,
            "action": self.action,
            "descendants": [each.as_dict() for each in self.descendants],
            "more_descendants": self.more_descendants,
        }

    def __str__(self) -> str:
        return "\n".join([self._head, *(_folded(start, text) for start, text in self._lines()), *self._tree()])

    @property
    def unfolded(self) -> str:
        """As `str()`, with one line a fact, however long, for a page that folds lines itself and draws the tree."""
        return "\n".join([self._head, *(f"{start} {text}" for start, text in self._lines())])

    @property
    def _head(self) -> str:
        return f"{self.turn} is {self.status}: {self.reason}"

    def _lines(self) -> list[tuple[str, str]]:
        return [("  it", self.summary), *((f"  {name:<11}", text) for name, text in self._facts() if text)]

    def _facts(self) -> list[tuple[str, str]]:
        """What else is known: a word and a text, which is empty if there is nothing to say."""
        held, error, deadline = self.claim, self.last_error, self.deadline_at
        if self.status in TERMINAL and deadline is not None and deadline > self.now:
            deadline = None  # it comes no more
        return [
            ("since", f"{moment(self.since)}, for {age(self.now - self.since)} ({self.since_column})"),
            *(("waiting on", f"{each.kind} {each.id}, for {age(self.now - each.since)}") for each in self.waiting_on),
            ("claimed by", f"{harmless(held.by, limit=100)}, for {age(self.now - held.since)}" if held else ""),
            ("lease", self._relative("ends", "ended", held.lease_expires_at if held else None)),
            ("attempts", f"{self.attempts} of its workers died or failed" if self.attempts else ""),
            ("next try", self._relative("due", "due", self.next_attempt_at)),
            ("deadline", self._relative("comes", "passed", deadline)),
            ("limit", _limit(self.limit)),
            ("last error", one_line(f"{error.get('type')}: {error.get('message')}") if error else ""),
            ("retry of", self.retry_of or ""),
            ("action", self.action),
        ]

    def _tree(self) -> list[str]:
        lines = ["  " * (each.depth - 1) + str(each) for each in self.descendants]
        lines += [f"and {self.more_descendants} more"] if self.more_descendants else []
        return [f"  {'' if place else 'started':<11} {line}" for place, line in enumerate(lines)]

    def _relative(self, coming: str, gone: str, at: datetime | None) -> str:
        if at is None:
            return ""
        if at > self.now:
            return f"{coming} in {age(at - self.now)}, at {moment(at)}"
        return f"{gone} {age(self.now - at)} ago, at {moment(at)}"


def age(time: timedelta) -> str:
    """A length of time in its largest whole unit: `45 s`, `3 min`, `2 h`, `5 d`."""
    return duration(time.total_seconds())


def moment(at: datetime) -> str:
    """A time to the second, in UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()


def _folded(start: str, text: str) -> str:
    margin = " " * (len(start) + 1)
    lines = wrap(text, _WIDTH - len(margin), break_long_words=False, break_on_hyphens=False)
    return f"{start} " + f"\n{margin}".join(lines)


def _limit(limit: Limit | None) -> str:
    if limit is None:
        return ""
    value, used = ("?" if number is None else f"{number:.10g}" for number in (limit.value, limit.used))
    return f"{limit.name}: {used} of {value}"
