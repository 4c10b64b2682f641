"""The loop: read, decide, act, record; and what happens when a worker's code fails."""

from __future__ import annotations

import logging
import os
import socket
import threading
from asyncio import CancelledError
from contextlib import suppress
from typing import assert_never

from turnkit_django import conf
from turnkit_django.agents import Agent, get_agent
from turnkit_django.core.backoff import recovery_delay
from turnkit_django.core.content import clean_text
from turnkit_django.core.ids import new_token
from turnkit_django.engine import effects, heartbeat, model_call, reconcile, tool_calls
from turnkit_django.engine.decide import CallModel, Fail, Pause, Publish, RunTool, SkipCall, next_step
from turnkit_django.engine.heartbeat import Held
from turnkit_django.engine.run import Running, error, said
from turnkit_django.errors import ConfigError, LostClaim, UnclaimableTurn
from turnkit_django.failpoints import reach
from turnkit_django.models import ToolExecution, Turn
from turnkit_django.store import connections, transitions
from turnkit_django.store.claims import Claimed, Holder, PauseRetracted
from turnkit_django.store.records import AttemptEnd, NewChild
from turnkit_django.tools import Tool

logger = logging.getLogger("turnkit")

_DEPLOY_SECONDS = 30.0


def worker_name() -> str:
    """This process as claims name it: `host:pid`."""
    return f"{socket.gethostname()}:{os.getpid()}"


def holder(*, slots: int = 1) -> Holder:
    """Who claims in this thread: `host:pid:slot`, with fresh tokens."""
    name = f"{worker_name()}:{threading.get_native_id()}"
    return Holder(name, conf.get().LEASE_SECONDS, tuple(new_token() for _ in range(slots)))


def run_next(*, spare: int = 0) -> bool:
    """Claim the next due turn and run it; whether there was one.

    Args:
        spare: How many lanes more to look at, in case somebody has locked the heads of the first ones.
    """
    try:
        claimed = transitions.claim(holder(), spare=spare)
    except UnclaimableTurn as problem:
        reconcile.set_aside(problem.turn_id, problem.__cause__ or problem)
        return False
    for one in claimed:
        run_claimed(one)
    return bool(claimed)


def run_inline(turn_id: str) -> None:
    """Claim one turn that was not submitted and run it here.

    Raises:
        LaneBusy: If its conversation has another started turn or submitted work.
        StateError: If it cannot be run here.
    """
    run_claimed(transitions.claim_this(turn_id, holder()))


def run_claimed(claimed: Claimed) -> None:
    """Drive a claimed turn until it ends, waits, or is lost."""
    reach("claimed")
    with heartbeat.holding(claimed.claim, lease_seconds=conf.get().LEASE_SECONDS) as held:
        try:
            _drive(claimed, held)
        except LostClaim as gone:
            logger.info("%s", gone, extra={"event": "claim.lost", "turn_id": claimed.turn.pk})
    connections.release()


def _drive(claimed: Claimed, held: Held) -> None:
    run, before = None, connections.open_blocks()
    try:
        claimed.news.send()
        agent = get_agent(claimed.turn.agent_name)
        _compare(agent, claimed.turn)
        run = Running.of(claimed, held, agent)
        while _one_step(run):
            held.require()
    except LostClaim:
        raise
    except (KeyboardInterrupt, SystemExit) as problem:
        connections.roll_back_since(before)
        # If it came between a commit and its note, the claim in hand is out of date: the lease frees the turn.
        with suppress(LostClaim):
            if tool_calls.is_order_to_stop(problem) or not claimed.turn.is_background:
                _let_go(claimed, held, run)
            else:  # a model client's own: counted, or the turn would stop every worker for ever
                _give_back(claimed, held, run, problem)
        raise
    except (Exception, CancelledError) as problem:
        connections.roll_back_since(before)
        _give_back(claimed, held, run, problem)


def _compare(agent: Agent, turn: Turn) -> None:
    """A deploy may have changed the agent under the turn, which keeps what it was made with: go on, and say so."""
    if agent.fingerprint != turn.agent_fingerprint:
        logger.warning(
            "turn %s was made for version %s of agent %s, and goes on under version %s",
            turn.pk,
            turn.agent_version,
            agent.name,
            agent.version,
            extra={"event": "agent.changed", "turn_id": turn.pk},
        )


def _one_step(run: Running) -> bool:
    """Decide, act, record; whether the turn goes on."""
    step = next_step(run.snapshot())
    match step:
        case Pause():
            return _pause(run)
        case CallModel():
            return model_call.act(run)
        case RunTool(execution_id):
            return _run_call(run, run.call(execution_id))
        case SkipCall(execution_id):
            tool_calls.skip(run, run.call(execution_id))
            return True
        case Publish():
            _publish_completion(run)
            return False
        case Fail(error_type, message):
            transitions.fail(run.held.claim, error=error(error_type, message), attempt=run.attempt_end)
            return False
        case _:
            assert_never(step)


def _pause(run: Running) -> bool:
    """Stop here; whether the turn goes on, because nobody wants it to pause any more."""
    try:
        transitions.acknowledge_pause(run.held.claim)
    except PauseRetracted:
        run.held.wrote(run.held.claim.with_pause(is_requested=False))
        return True
    return False


def _run_call(run: Running, call: ToolExecution) -> bool:
    tool = run.agent.tool_named(call.tool_name)
    if tool is not None and tool.coordinates and call.error is None:
        return effects.act(run, call, tool, run_child=_run_child)
    tool_calls.act(run, call)
    return True


def _run_child(run: Running, child: NewChild) -> None:
    """Run the turn that a call of an inline turn asks for, here and now."""
    run_claimed(transitions.claim_child(child, holder(), parent_token=run.held.claim.token))


def _publish_completion(run: Running) -> None:
    text = "" if run.turn.candidate else _completion_text(run)
    reach("before_publish")
    transitions.complete(run.held.claim, text=text, reply=None)
    reach("published")


def _completion_text(run: Running) -> str:
    ending = next(call for call in reversed(run.calls) if call.status == "completed")
    return _completion(run.agent.tool_named(ending.tool_name), ending)


def _completion(tool: Tool | None, ending: ToolExecution) -> str:
    """The terminal tool's words; its work is done, so an error in them changes nothing else."""
    try:
        if tool is not None:
            return clean_text(tool.completion(ending.result))
    except BaseException as problem:
        if tool_calls.is_order_to_stop(problem):
            raise
        told = {"event": "tool.completion_failed"}
        logger.error("tool %s: completion() failed: %s", ending.tool_name, conf.clean_traceback(problem), extra=told)
    return f"Completed by {ending.tool_name}."


def _let_go(claimed: Claimed, held: Held, run: Running | None) -> None:
    """The process is told to stop: leave the turn to another worker, or end it if nobody would come back."""
    attempt = run.attempt_end if run else AttemptEnd.UNSENT
    stopped = error("WorkerStopped", "the worker was stopped")
    if claimed.turn.is_background:
        transitions.release(held.claim, error=stopped, seconds=0, attempt=attempt, is_fault=False)
    else:
        transitions.fail(held.claim, error=stopped, attempt=attempt)


def _give_back(claimed: Claimed, held: Held, run: Running | None, problem: BaseException) -> None:
    """An error that is not the turn's: release it at once with a back-off, a bounded number of times."""
    turn = claimed.turn
    told = {"event": "turn.fault", "turn_id": turn.pk}
    logger.error("turn %s: the worker failed: %s", turn.pk, conf.clean_traceback(problem), extra=told)
    attempts = turn.attempts + 1
    why = error(type(problem).__name__, said(problem), attempts=attempts)
    attempt = run.attempt_end if run else AttemptEnd.UNSENT
    if turn.is_background and attempts <= conf.get().MAX_RECOVERIES:
        # A definition is mended by a deploy, which takes longer than a worker's bad moment.
        patience = _DEPLOY_SECONDS if isinstance(problem, ConfigError) else 1.0
        seconds = patience * max(recovery_delay(attempts), 1.0)
        transitions.release(held.claim, error=why, seconds=seconds, attempt=attempt, is_fault=True)
    else:
        transitions.fail(held.claim, error=why, attempt=attempt)
