"""Snapshot → next step, and reply → what it is. Pure: every rule of precedence is one line here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from turnkit_django.core.requests import ModelReply
from turnkit_django.core.states import SETTLED, Phase


@dataclass(frozen=True, slots=True)
class CallView:
    """A call of the turn, as far as the next step depends on it."""

    execution_id: str
    status: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything `next_step` may look at.

    Attributes:
        phase: Where the turn stands.
        is_pause_requested: Whether somebody has told it to pause.
        is_reserved: Whether the next model call is counted already.
        is_overdue: Whether the deadline has passed.
        broken_replies: Cut or unusable replies in a row, by the last of which `broken_reason` is.
        calls: The calls of the open batch, in call order.
    """

    phase: Phase
    is_pause_requested: bool
    is_reserved: bool
    is_overdue: bool
    max_iterations: int
    broken_replies: int
    max_broken_replies: int
    broken_reason: str
    calls: Sequence[CallView]

    @property
    def open_calls(self) -> list[CallView]:
        return [call for call in self.calls if call.status not in SETTLED]


@dataclass(frozen=True, slots=True)
class Pause:
    """Let the turn stand still until somebody resumes it."""


@dataclass(frozen=True, slots=True)
class CallModel:
    """Send the reserved request."""


@dataclass(frozen=True, slots=True)
class RunTool:
    """Run, or settle without running, this call."""

    execution_id: str


@dataclass(frozen=True, slots=True)
class SkipCall:
    """A terminal tool has ended the turn before this call."""

    execution_id: str


@dataclass(frozen=True, slots=True)
class Publish:
    """A terminal tool's completion text is the answer."""


@dataclass(frozen=True, slots=True)
class Fail:
    """End the turn with this error."""

    error_type: str
    message: str


Step: TypeAlias = Pause | CallModel | RunTool | SkipCall | Publish | Fail


def next_step(turn: Snapshot) -> Step:
    """What to do now."""
    if turn.is_pause_requested:
        return Pause()
    open_calls = turn.open_calls
    if turn.phase is Phase.OUTPUT:  # the answer is there: a limit that is reached now does not take it back
        return SkipCall(open_calls[0].execution_id) if open_calls else Publish()
    if turn.is_overdue:
        return Fail("BudgetError", "turn timed out")
    if turn.broken_replies >= turn.max_broken_replies:
        return Fail("UnfinishedAnswer", f"{turn.broken_reason}, {turn.broken_replies} times in a row")
    if turn.phase is Phase.TOOLS and open_calls:
        return RunTool(open_calls[0].execution_id)
    if turn.is_reserved:
        return CallModel()
    return Fail("BudgetError", f"maximum iterations reached ({turn.max_iterations})")


class ReplyKind(Enum):
    ANSWER = "answer"
    CALLS = "calls"
    CUT = "cut"
    BROKEN_OFF = "broken off"
    EMPTY = "empty"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a reply is, and why it is not an answer."""

    kind: ReplyKind
    reason: str = ""


_CUT_REASONS = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
# The provider stopped in the middle, whatever it calls that.
_BROKEN_REASONS = frozenset(
    {
        "abort",
        "aborted",
        "cancelled",
        "error",
        "incomplete",
        "insufficient_system_resource",
        "malformed_function_call",
        "pause_turn",
        "timeout",
    }
)
_BLOCKED_REASONS = frozenset(
    {
        "blocklist",
        "content_filter",
        "guardrail_intervened",
        "prohibited_content",
        "recitation",
        "refusal",
        "safety",
        "spii",
    }
)


def judge(reply: ModelReply, *, max_output_tokens: int) -> Verdict:
    """What a model's reply is. Only an `ANSWER` may be published, only `CALLS` may run."""
    reason = reply.finish_reason.lower()
    if reply.refusal or reason in _BLOCKED_REASONS:
        said = f": {reply.refusal}" if reply.refusal else ""
        return Verdict(ReplyKind.REFUSED, f"the model refused or its answer was blocked{said}")
    if reason in _BROKEN_REASONS:
        return Verdict(
            ReplyKind.BROKEN_OFF, f"the provider broke the answer off (finish reason {reply.finish_reason!r})"
        )
    if reason in _CUT_REASONS or _is_cut(reply, max_output_tokens):
        return Verdict(ReplyKind.CUT, f"the answer was cut off by the output limit ({max_output_tokens} tokens)")
    if reply.calls:
        return Verdict(ReplyKind.CALLS)
    if reply.is_empty or (not reply.text.strip() and reply.finish_reason != "stop"):
        return Verdict(ReplyKind.EMPTY, f"the model answered nothing (finish reason {reply.finish_reason!r})")
    return Verdict(ReplyKind.ANSWER)


def _is_cut(reply: ModelReply, max_output_tokens: int) -> bool:
    """Some servers call a cut reply finished: then broken arguments and a used-up limit give it away."""
    produced = (reply.usage.output_tokens + reply.usage.thinking_tokens) if reply.usage else 0
    return produced >= max_output_tokens and any(not is_json(call.arguments) for call in reply.calls)


def is_json(text: str) -> bool:
    try:
        json.loads(text or "{}")
    except (ValueError, RecursionError):
        return False
    return True
