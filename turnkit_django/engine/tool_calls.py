"""Act: run one tool, and record what became of it."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import dataclass

from turnkit_django import conf
from turnkit_django.core.content import Json, as_text, clean_text
from turnkit_django.core.states import Phase, ToolState
from turnkit_django.dispatch.base import get_dispatcher
from turnkit_django.engine.run import Running, error, said
from turnkit_django.errors import ToolError, ToolValidationError
from turnkit_django.failpoints import reach
from turnkit_django.models import ToolExecution
from turnkit_django.store import connections, transitions
from turnkit_django.store.claims import CallGone, Claim
from turnkit_django.store.records import Next, Settlement
from turnkit_django.tools import Tool, ToolContext, normalize_result
from turnkit_django.tools.tool import ValidArguments

logger = logging.getLogger("turnkit")

_LONGEST_MESSAGE = 1000  # what a model needs to know of an exception
_LONGEST_TRACEBACK = 20_000
_LEFT_OPEN = "the tool ran, but left a transaction open in the database; what it wrote there was rolled back"


@dataclass(frozen=True, slots=True)
class Outcome:
    status: ToolState
    result: Json = None
    error: dict[str, Json] | None = None
    ran_seconds: float | None = None

    @property
    def text(self) -> str:
        """What the model reads: the result, or what went wrong without the details that are for people."""
        return as_text(self.result if self.error is None else {"error": self.error["message"]})


def is_valid(tool: Tool, arguments_text: str) -> bool:
    """Whether the call would reach the tool's body."""
    try:
        tool.validate(arguments_text)
    except ToolValidationError:
        return False
    return True


def act(run: Running, execution: ToolExecution) -> None:
    """Run one call of the batch, or say why it does not run."""
    tool = run.agent.tool_named(execution.tool_name)
    checked = _checked(run, execution, tool)
    if isinstance(checked, Outcome):
        settle(run, execution, checked, None)
    else:
        known, arguments = checked
        outcome = _run(run, execution, known, arguments)
        if outcome is not None:
            settle(run, execution, outcome, arguments, is_terminal=known.terminal)


def skip(run: Running, execution: ToolExecution) -> None:
    """Close a call that a terminal tool has overtaken."""
    outcome = Outcome(ToolState.CANCELLED, error=error("Skipped", "Not run: another tool has ended the turn."))
    settle(run, execution, outcome, None, is_terminal=True)


def _checked(run: Running, execution: ToolExecution, tool: Tool | None) -> Outcome | tuple[Tool, ValidArguments]:
    """What the body is called with, or why it is not called."""
    if execution.error is not None:
        return Outcome(ToolState.FAILED, error=execution.error)
    if tool is None:
        known = ", ".join(sorted(run.agent.tool_names)) or "none"
        return failure("UnknownTool", f"There is no tool {execution.tool_name!r}. Tools: {known}")
    if execution.status == ToolState.PENDING and execution.started_at is not None and tool.recovery == "unknown":
        # It was started when the tool was said to be repeatable; a deploy has taken that back.
        message = "The worker stopped while this tool ran. Whether it took effect is unknown."
        return Outcome(ToolState.INTERRUPTED, error=error("Interrupted", message))
    try:
        return tool, tool.validate(execution.arguments_text)
    except ToolValidationError as problem:
        return failure("ToolValidationError", str(problem))


def failure(error_type: str, message: str, **details: Json) -> Outcome:
    message = conf.clean(message)[:_LONGEST_MESSAGE]  # cut first, half a secret would not be known for one
    return Outcome(ToolState.FAILED, error=error(error_type, message, **details))


def _run(run: Running, execution: ToolExecution, tool: Tool, arguments: ValidArguments) -> Outcome | None:
    """None: its start has shown that somebody wants the turn to pause, so that its body was not called."""
    run.held.require()
    if execution.status == ToolState.PENDING and not _start(run, execution, arguments):
        return failure("Vanished", "its row was deleted before it was started")
    if run.held.claim.is_pause_requested:
        return None
    execution.arguments = arguments.arguments
    connections.release()
    reach("tool_started")
    limit = conf.get().TOOL_TIMEOUT if tool.timeout is None else tool.timeout.total_seconds()
    with run.held.within(limit):
        outcome = run_body(run, execution, lambda context: normalize_result(tool.invoke(arguments, context=context)))
    reach("tool_returned")
    return outcome


def run_body(run: Running, execution: ToolExecution, body: Callable[[ToolContext], Json]) -> Outcome:
    """Call what an application wrote: an exception is the call's failure, a transaction left open is rolled back."""
    context = _context(run, execution)
    began, before = time.monotonic(), connections.open_blocks()
    try:
        outcome = _called(body, context)
    finally:
        has_left_open = connections.roll_back_since(before)
    if has_left_open and outcome.status is ToolState.COMPLETED:
        outcome = failure("ToolError", _LEFT_OPEN)
    return Outcome(outcome.status, outcome.result, outcome.error, ran_seconds=time.monotonic() - began)


def _start(run: Running, execution: ToolExecution, arguments: ValidArguments) -> bool:
    """Whether its row is still there to be started."""
    try:
        claim = transitions.start_tool(
            run.held.claim,
            execution.pk,
            tool_name=execution.tool_name,
            arguments=arguments.arguments,
            lease_seconds=run.held.lease_seconds,
        )
    except CallGone as gone:
        run.held.wrote(gone.claim)
        return False
    run.held.wrote(claim)
    run.started(execution)
    return True


def _context(run: Running, execution: ToolExecution) -> ToolContext:
    """Copies: what a tool does to them changes nothing for the next one, as it would not after a recovery."""
    turn, conversation = copy(run.turn), copy(run.conversation)
    turn.context, turn.principal = deepcopy(turn.context), deepcopy(turn.principal)
    return ToolContext(turn=turn, execution=copy(execution), conversation=conversation, principal=turn.principal)


def _called(body: Callable[[ToolContext], Json], context: ToolContext) -> Outcome:
    """Any exception of the body, SystemExit too, is this call's failure and nobody else's."""
    try:
        return Outcome(ToolState.COMPLETED, result=body(context))
    except ToolError as problem:
        return failure(type(problem).__name__, said(problem))
    except BaseException as problem:
        if is_order_to_stop(problem):
            raise
        trace = conf.clean_traceback(problem)
        told = {"event": "tool.failed", "tool": context.execution.tool_name, "execution_id": context.execution.pk}
        logger.warning("tool %s failed in %s: %s", told["tool"], context.execution.pk, trace, extra=told)
        return failure(type(problem).__name__, _short(problem), traceback=clean_text(trace[-_LONGEST_TRACEBACK:]))


def is_order_to_stop(problem: BaseException) -> bool:
    """Whether it came from a signal: what the body had done by then is not known, so the call has not failed.

    Ctrl-C cannot be told from a `KeyboardInterrupt` of the body's own, except where no signal raises one.
    """
    if isinstance(problem, SystemExit):
        return get_dispatcher().is_stopping()
    in_main_thread = threading.current_thread() is threading.main_thread()
    is_raised_by_signal = in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return isinstance(problem, KeyboardInterrupt) and is_raised_by_signal


def _short(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {said(problem)}"


def settle(
    run: Running,
    execution: ToolExecution,
    outcome: Outcome,
    arguments: ValidArguments | None,
    *,
    is_terminal: bool = False,
) -> None:
    """Record what became of a call, and start what comes next."""
    then = _next(run, execution, ends_turn=is_terminal and outcome.status in {ToolState.COMPLETED, ToolState.CANCELLED})
    settlement = Settlement(
        execution_id=execution.pk,
        status=outcome.status.value,
        text=conf.clean(outcome.text) if outcome.error else outcome.text,
        arguments=arguments.arguments if arguments else None,
        result=outcome.result,
        error=outcome.error,
        ran_seconds=outcome.ran_seconds,
        tool_name=execution.tool_name,
    )
    try:
        claim = transitions.settle_tool(
            run.held.claim,
            settlement,
            call_id=execution.tool_call_id,
            call_key=execution.call_key,
            then=then,
            lease_seconds=run.held.lease_seconds,
        )
    except CallGone as gone:
        claim = _without_row(run, execution, gone)
    run.held.wrote(claim)
    run.settled(execution, settlement)
    if then.execution_id is not None:
        run.started(run.call(then.execution_id))
    run.moved_to(then.phase, then.reservation)
    reach("result_stored")


def _without_row(run: Running, execution: ToolExecution, gone: CallGone) -> Claim:
    """The turn goes on: the model will read that this call has no result."""
    told = {"event": "tool.vanished", "execution_id": execution.pk, "turn_id": run.turn.pk}
    logger.warning("the outcome of %s is not stored, because its row is gone: %s", execution.pk, gone, extra=told)
    return gone.claim


def _next(run: Running, execution: ToolExecution, *, ends_turn: bool) -> Next:
    """What the settling write starts as well."""
    if ends_turn:
        return Next(Phase.OUTPUT)
    left = [call for call in run.open_calls() if call.pk != execution.pk]
    if not left:
        return Next(Phase.MODEL, reservation=run.reservation())
    if not _may_start(run, left[0]):
        return Next(Phase.TOOLS)
    return Next(Phase.TOOLS, execution_id=left[0].pk, tool_name=left[0].tool_name)


def _may_start(run: Running, execution: ToolExecution) -> bool:
    tool = run.agent.tool_named(execution.tool_name)
    return (
        not run.is_overdue  # it would end as started, though its body was never called
        and execution.error is None
        and tool is not None
        and tool.recovery == "replay_safe"
        and is_valid(tool, execution.arguments_text)
    )
