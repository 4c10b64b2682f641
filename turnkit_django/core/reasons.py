"""Why a turn stands where it stands: every reason there is, as a table. Codes are stable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """The codes. A turn that none of them fits is a bug of the package."""

    NOT_SUBMITTED = "not_submitted"
    WAKE_UP_SENT = "wake_up_sent"
    WAKE_UP_LOST = "wake_up_lost"
    NO_WAKE_UP = "no_wake_up"
    BEHIND_IN_LANE = "behind_in_lane"
    WORKER_DIED = "worker_died"
    AGENT_NOT_REGISTERED = "agent_not_registered"
    BACKED_OFF = "backed_off"
    DEPENDENCIES = "dependencies"
    PARKED = "parked"
    TIME_HAS_COME = "time_has_come"
    PAUSED = "paused"
    NO_PLACE_IN_LANE = "no_place_in_lane"
    OVERDUE = "overdue"
    SET_ASIDE = "set_aside"
    CALLING_MODEL = "calling_model"
    RUNNING_TOOL = "running_tool"
    BETWEEN_STEPS = "between_steps"
    RUNNING_INLINE = "running_inline"
    OVERDUE_IN_STEP = "overdue_in_step"
    LEASE_EXPIRED = "lease_expired"
    INLINE_LEASE_EXPIRED = "inline_lease_expired"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    STALE = "stale"
    FAILED_MAX_ITERATIONS = "failed_max_iterations"
    FAILED_TIMEOUT = "failed_timeout"
    FAILED_MAX_RECOVERIES = "failed_max_recoveries"
    FAILED_MAX_BROKEN_REPLIES = "failed_max_broken_replies"
    FAILED_MODEL_RETRIES = "failed_model_retries"
    FAILED_MODEL_ERROR = "failed_model_error"
    FAILED_NO_ACCESS = "failed_no_access"
    FAILED_REFUSED = "failed_refused"
    FAILED_WORKER_ERROR = "failed_worker_error"
    FAILED_WORKER_STOPPED = "failed_worker_stopped"
    FAILED = "failed"


ENDED = "nothing: it has ended"
_RETRY = f"{ENDED}; `retry()` tries again in a new turn"
_TAKE = "start a worker (`rqworker`), or run `turnkit_reconcile --run`"
_MAINTAIN = "`turnkit_reconcile`"
_WAITED = ("submitted_at", "started_at", "not_before")
_ENDED = ("completed_at",)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a reason says. Texts may hold `{names}`, which are filled with what stands on the rows.

    Attributes:
        status: The statuses of the turns it is said of.
        summary: The sentence after "it".
        action: What would move the turn.
        since: The columns of the turn whose latest time in the past is `since`; empty for the start of the tool or
            of whatever else it does.
        limit: The setting whose limit was reached or is counted towards.
    """

    status: str
    summary: str
    action: str
    since: tuple[str, ...] = _WAITED
    limit: str = ""


MEANINGS: Mapping[Reason, Meaning] = {
    Reason.NOT_SUBMITTED: Meaning(
        "pending",
        "was prepared and never submitted, so nobody runs it",
        "call its `submit()`, or its `run()` while its conversation is idle",
        since=("created_at", "started_at"),
    ),
    Reason.WAKE_UP_SENT: Meaning(
        "pending",
        "is due; a wake-up was sent and no worker has taken it yet",
        f"a free worker takes it; if none runs, {_TAKE}",
        since=("wake_sent_at",),
    ),
    Reason.WAKE_UP_LOST: Meaning(
        "pending",
        "is due; a wake-up was sent, and in 30 s no worker has taken it: none runs, all are busy, or it was lost",
        f"no worker has taken it; {_TAKE}; {_MAINTAIN} alone sends a new wake-up",
        since=("wake_sent_at",),
    ),
    Reason.NO_WAKE_UP: Meaning(
        "pending",
        "is due, and no wake-up is in force for it: it could not be sent (is Redis down?) or its time came just now",
        f"no worker has taken it; {_TAKE}; {_MAINTAIN} alone sends the wake-up",
    ),
    Reason.BEHIND_IN_LANE: Meaning(
        "pending",
        "stands behind {blocker} in its lane, which is {blocker_status} ({blocker_reason}) and {blocker_summary}",
        "it is taken when {blocker} has ended; for that one: {blocker_action}",
        since=("submitted_at",),
    ),
    Reason.WORKER_DIED: Meaning(
        "pending",
        "lost its worker and is not tried again before {next}",
        "a worker takes it at {next}; if workers die of it each time, `cancel()` it",
        limit="MAX_RECOVERIES",
    ),
    Reason.AGENT_NOT_REGISTERED: Meaning(
        "pending",
        "cannot run: its worker knows no agent `{agent}`; it is not tried again before {next}",
        "deploy workers that register `{agent}`: the next one to try takes it at {next}; or `cancel()` it",
        limit="MAX_RECOVERIES",
    ),
    Reason.BACKED_OFF: Meaning(
        "pending",
        "is backed off after an error of its worker, and is not tried again before {next}",
        "a worker takes it at {next}; mend what the last error says",
        limit="MAX_RECOVERIES",
    ),
    Reason.DEPENDENCIES: Meaning(
        "pending, waiting",
        "misses {dependencies} that must be there before it goes on",
        "it goes on when what it waits for is there; or `cancel()` it",
    ),
    Reason.PARKED: Meaning(
        "waiting",
        "is parked until {next}: the provider of {model} is asked again then",
        f"{_MAINTAIN} makes it pending at {{next}}, if it runs then",
        limit="MODEL_RETRIES",
    ),
    Reason.TIME_HAS_COME: Meaning(
        "waiting",
        "has waited long enough and misses nothing; maintenance has not looked at it since",
        f"{_MAINTAIN} makes it pending: run it from cron or with `--loop`",
    ),
    Reason.PAUSED: Meaning(
        "paused",
        "is paused{pause_reason}",
        "`resume()` lets it go on; `cancel()` ends it",
    ),
    Reason.NO_PLACE_IN_LANE: Meaning(
        "waiting",
        "has no place in its lane, so neither workers nor maintenance look at it: something else wrote the row",
        "`cancel()` it",
    ),
    Reason.OVERDUE: Meaning(
        "pending, waiting, paused",
        "has passed its deadline, and maintenance has not ended it yet",
        f"{_MAINTAIN} fails it: run it from cron or with `--loop`",
        since=("deadline_at",),
        limit="TIMEOUT",
    ),
    Reason.SET_ASIDE: Meaning(
        "pending, waiting, paused, running",
        "was set aside because its row could not be written; nobody looks at it before {next}",
        "mend what the last error says; it is looked at again at {next}",
    ),
    Reason.CALLING_MODEL: Meaning(
        "running",
        "waits for an answer of {model}",
        "its worker goes on with the answer, or after MODEL_TIMEOUT seconds of silence; `cancel()` ends it at once",
        since=("attempt_started_at",),
    ),
    Reason.RUNNING_TOOL: Meaning(
        "running",
        "runs the tool {tool}",
        "its worker goes on when the tool ends; `cancel()` ends the turn at once",
        since=(),
    ),
    Reason.BETWEEN_STEPS: Meaning(
        "running",
        "is between two steps (phase {phase})",
        "its worker takes the next step by itself; `cancel()` ends it at once",
        since=("claimed_at",),
    ),
    Reason.RUNNING_INLINE: Meaning(
        "running",
        "runs inline, in the process that asked for it: it {step}",
        "that process takes the next step by itself; `cancel()` ends the turn at once",
        since=(),
    ),
    Reason.OVERDUE_IN_STEP: Meaning(
        "running",
        "has passed its deadline while it {step}",
        "its worker fails it after this step; `cancel()` ends it at once",
        since=("deadline_at",),
        limit="TIMEOUT",
    ),
    Reason.LEASE_EXPIRED: Meaning(
        "running",
        "is held by a worker that has not renewed its lease: it is dead, or cut off from the database",
        f"{_MAINTAIN} takes it back, to run again or, past MAX_RECOVERIES, to fail: run it from cron or with `--loop`",
        since=("lease_expires_at",),
        limit="MAX_RECOVERIES",
    ),
    Reason.INLINE_LEASE_EXPIRED: Meaning(
        "running",
        "ran inline in a process that has not renewed its lease: it is dead, or cut off from the database",
        f"{_MAINTAIN} makes it stale, since nobody resumes a turn that was not submitted",
        since=("lease_expires_at",),
    ),
    Reason.COMPLETED: Meaning("completed", "has answered", ENDED, _ENDED),
    Reason.CANCELLED: Meaning("cancelled", "was cancelled", ENDED, _ENDED),
    Reason.STALE: Meaning(
        "stale", "was not submitted, and the process that ran it died: nobody resumes it", ENDED, _ENDED
    ),
    Reason.FAILED_MAX_ITERATIONS: Meaning(
        "failed", "needed more model calls than it may make", _RETRY, _ENDED, "MAX_ITERATIONS"
    ),
    Reason.FAILED_TIMEOUT: Meaning("failed", "was not ready by its deadline", _RETRY, _ENDED, "TIMEOUT"),
    Reason.FAILED_MAX_RECOVERIES: Meaning(
        "failed",
        "was given up, because its workers died or failed too often: find out of what before you retry it",
        _RETRY,
        _ENDED,
        "MAX_RECOVERIES",
    ),
    Reason.FAILED_MAX_BROKEN_REPLIES: Meaning(
        "failed", "got only cut or unusable replies from {model}", _RETRY, _ENDED, "MAX_BROKEN_REPLIES"
    ),
    Reason.FAILED_MODEL_RETRIES: Meaning(
        "failed", "found the provider of {model} unavailable too often in a row", _RETRY, _ENDED, "MODEL_RETRIES"
    ),
    Reason.FAILED_MODEL_ERROR: Meaning("failed", "got an error from {model} that ended it", _RETRY, _ENDED),
    Reason.FAILED_NO_ACCESS: Meaning(
        "failed",
        "could not ask {model}, for want of credentials or of a model of that name: set the variable that the last "
        "error names in the worker's environment, or mend the name, restart the worker, and retry",
        _RETRY,
        _ENDED,
    ),
    Reason.FAILED_REFUSED: Meaning("failed", "was refused by {model}, or a filter blocked the answer", _RETRY, _ENDED),
    Reason.FAILED_WORKER_ERROR: Meaning(
        "failed", "ran inline, where an error of the code around it ends a turn at once", _RETRY, _ENDED
    ),
    Reason.FAILED_WORKER_STOPPED: Meaning(
        "failed",
        "ran inline in a process that was told to stop: submit what must survive that",
        _RETRY,
        _ENDED,
    ),
    Reason.FAILED: Meaning("failed", "failed as the last error says", _RETRY, _ENDED),
}
