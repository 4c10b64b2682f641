"""Act: ask the model, and record what it said."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import cast

from django.utils import timezone
from django.utils.module_loading import import_string

from turnkit_django import conf
from turnkit_django.agents import Agent, get_agent
from turnkit_django.clients.base import ModelClient
from turnkit_django.clients.chat import form_for
from turnkit_django.core.backoff import retry_delay
from turnkit_django.core.content import Json, Part, call_key, clean_text, text_part
from turnkit_django.core.events import ModelRequested
from turnkit_django.core.ids import new_tool_execution_id
from turnkit_django.core.requests import ModelReply, ModelRequest, ToolSpec
from turnkit_django.core.states import Phase, ToolState
from turnkit_django.core.usage import Usage
from turnkit_django.engine import tool_calls
from turnkit_django.engine.decide import ReplyKind, Verdict, judge
from turnkit_django.engine.projection import project
from turnkit_django.engine.run import Running, error
from turnkit_django.errors import ModelAccessError, ModelError, PermanentModelError, TransientModelError
from turnkit_django.failpoints import reach
from turnkit_django.models import ToolExecution, Turn
from turnkit_django.store import connections, outbox, reads, transitions
from turnkit_django.store.records import AttemptEnd, NewCall, Next, Reply

_override: ModelClient | None = None
_EMPTY_REPLIES = 2  # nothing can be told to a model that says nothing: asking once more is enough
_LONGEST_ATTEMPT = 300  # of a failed try's error, kept with the answer that came in the end
_NO_TOOLS = ToolSpec("no_tools", "There are no tools. Do not call this.", {"type": "object", "properties": {}})
"""Providers refuse a history with calls that comes without tools: a deploy may have taken all of them away."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A reply, what it is, and how many seconds it took."""

    reply: ModelReply
    verdict: Verdict
    seconds: float


@contextmanager
def use(client: ModelClient) -> Iterator[None]:
    """Answer every model call of this process by `client`: for tests."""
    global _override
    before, _override = _override, client
    try:
        yield
    finally:
        _override = before


def client_for(agent: Agent) -> ModelClient:
    return _override or agent.client or _default_client(conf.get().CLIENT)


@cache
def _default_client(path: str) -> ModelClient:
    return cast("ModelClient", import_string(path)())


def preview(turn: Turn) -> ModelRequest:
    """The request that a turn would send now; writes nothing, calls nothing."""
    turn = reads.turn(turn.pk)
    return request_for(turn, get_agent(turn.agent_name))


def request_for(turn: Turn, agent: Agent) -> ModelRequest:
    """The next request of a turn, from what is stored."""
    form = form_for(turn.model, forms=conf.get().REQUEST_FORMS)
    messages = tuple(project(reads.transcript(turn), own_turn_id=turn.pk, id_length=form.call_id_length))
    has_calls = any("tool_calls" in message for message in messages)
    return ModelRequest(
        model=turn.model,
        messages=messages,
        instructions=agent.instructions,
        tools=agent.tool_specs() or ((_NO_TOOLS,) if has_calls else ()),
        max_output_tokens=turn.max_output_tokens,
        thinking=cast("Mapping[str, Json] | None", turn.options.get("thinking")),
        metadata={"turn_id": turn.pk, "conversation_id": turn.conversation_id, "request_id": turn.request_id},
    )


def act(run: Running) -> bool:
    """Make the reserved model call; whether the turn goes on."""
    request = request_for(run.turn, run.agent)
    connections.release()
    run.held.require()
    reach("reserved")
    try:
        client = client_for(run.agent)
        client.validate(request.model)
        _announce(run, request)
        run.is_sent = True
        began = time.monotonic()
        with run.held.within(conf.get().MODEL_TIMEOUT):
            reply = client.complete(request)
    except TransientModelError as problem:
        return _put_off(run, problem)
    except PermanentModelError as problem:
        return _give_up(run, problem, _end_of(problem))
    except ModelAccessError as problem:
        return _give_up(run, problem, AttemptEnd.REFUSED)
    reach("responded")
    heard = Heard(reply, judge(reply, max_output_tokens=request.max_output_tokens), time.monotonic() - began)
    return _record(run, heard)


def _announce(run: Running, request: ModelRequest) -> None:
    """No row changes, so no transition tells it. Receivers may have used the connection: it is given back again."""
    outbox.News(
        ModelRequested(
            turn_id=run.turn.pk,
            conversation_id=run.turn.conversation_id,
            agent_name=run.turn.agent_name,
            model=request.model,
            request_id=run.turn.request_id,
            iteration=run.turn.iterations,
            message_count=len(request.messages),
            prompt_chars=request.prompt_chars,
            tool_names=tuple(request.tool_names),
        )
    ).send_after_commit()
    connections.release()


def _record(run: Running, heard: Heard) -> bool:
    reply, verdict = heard.reply, heard.verdict
    match verdict.kind:
        case ReplyKind.ANSWER:
            return _publish(run, heard)
        case ReplyKind.CALLS:
            return _store(run, heard, _new_calls(run, reply))
        case ReplyKind.CUT | ReplyKind.BROKEN_OFF:
            return _store(run, heard, _new_calls(run, reply, refusal=verdict.reason))
        case ReplyKind.EMPTY:
            return _store(run, heard, [])
        case ReplyKind.REFUSED:
            return _end_refused(run, heard)


def _end_refused(run: Running, heard: Heard) -> bool:
    reason = heard.verdict.reason
    calls = _new_calls(run, heard.reply, refusal=reason)
    transitions.fail(
        run.held.claim,
        error=error("Refused", reason, finish_reason=heard.reply.finish_reason),
        attempt=AttemptEnd.ANSWERED,
        reply=_reply(run, heard, calls),
        calls=calls,
    )
    return False


def _publish(run: Running, heard: Heard) -> bool:
    text = clean_text(heard.reply.text.strip())
    reach("before_publish")
    transitions.complete(run.held.claim, text=text, reply=_reply(run, heard, []))
    reach("response_stored")
    reach("published")
    return False


def _store(run: Running, heard: Heard, calls: list[NewCall]) -> bool:
    stored, verdict = _reply(run, heard, calls), heard.verdict
    broken = run.turn.broken_replies + 1 if stored.is_broken else 0
    phase = Phase.TOOLS if calls else Phase.MODEL
    limit = conf.get().MAX_BROKEN_REPLIES
    if verdict.kind is ReplyKind.EMPTY:
        limit = min(limit, _EMPTY_REPLIES)
    reservation = run.reservation() if phase is Phase.MODEL and broken < limit else None
    then = Next(phase, reservation)
    lease_seconds = run.held.lease_seconds
    run.held.wrote(transitions.store_reply(run.held.claim, stored, calls=calls, then=then, lease_seconds=lease_seconds))
    run.is_sent = False
    run.turn.broken_replies, run.turn.model_failures = broken, 0
    run.broken_reason, run.broken_limit = verdict.reason, limit
    run.billed(stored)
    run.calls += [_execution(run, call) for call in calls]
    run.moved_to(phase, reservation)
    reach("response_stored")
    return True


def _reply(run: Running, heard: Heard, calls: list[NewCall]) -> Reply:
    reply, verdict = heard.reply, heard.verdict
    # In one word each, whatever the server called it: the projection tells the model by it.
    words = {ReplyKind.CUT: "length", ReplyKind.BROKEN_OFF: "error", ReplyKind.REFUSED: "content_filter"}
    metadata: dict[str, Json] = {"finish_reason": words[verdict.kind]} if verdict.kind in words else {}
    if failed := _failed_attempts(run):
        metadata["failed_attempts"] = failed
    is_cut = verdict.kind in {ReplyKind.CUT, ReplyKind.BROKEN_OFF}
    return Reply(
        # A cut answer without a word is kept too: the model is told that it was cut.
        parts=_parts(reply, calls) or ([text_part("")] if is_cut else []),
        provider=reply.provider,
        usage=reply.usage or Usage(),
        cost=Decimal(reply.cost) if reply.cost is not None else None,
        metadata=metadata,
        is_broken=is_cut or verdict.kind is ReplyKind.EMPTY,
        model=run.turn.model,
        request_id=run.turn.request_id,
        seconds=round(heard.seconds, 3),
        finish_reason=clean_text(reply.finish_reason),
    )


def _parts(reply: ModelReply, calls: list[NewCall]) -> list[Part]:
    parts: list[Part] = []
    if reply.thinking:
        parts.append({"type": "thinking", "text": clean_text(reply.thinking)})
    if reply.text or (not calls and not reply.is_empty and reply.finish_reason == "stop"):
        parts.append(text_part(reply.text))
    parts += [
        {
            "type": "tool_call",
            "id": call.tool_call_id,
            "key": call.call_key,
            "name": call.tool_name,
            "arguments": call.arguments_text,
        }
        for call in calls
    ]
    if parts and reply.provider_data:
        parts.append({"type": "provider", "kind": reply.provider, "data": clean_text(reply.provider_data)})
    return parts


def _new_calls(run: Running, reply: ModelReply, *, refusal: str = "") -> list[NewCall]:
    """The rows of the proposed calls; the first one is started right away if it may be repeated."""
    made = []
    for place, call in enumerate(reply.calls):
        tool = run.agent.tool_named(call.name)
        will_run = not refusal and tool is not None and tool_calls.is_valid(tool, call.arguments)
        is_replay_safe = tool is not None and tool.recovery == "replay_safe"
        starts = place == 0 and will_run and is_replay_safe and not run.is_overdue
        made.append(
            NewCall(
                id=new_tool_execution_id(),
                tool_name=clean_text(call.name),
                tool_call_id=clean_text(call.id),
                call_key=call_key(call.id, iteration=run.turn.iterations, ordinal=place),
                ordinal=len(run.calls) + place,
                status=(ToolState.RUNNING if starts else ToolState.PENDING).value,
                is_replay_safe=is_replay_safe,
                arguments_text=clean_text(call.arguments),
                error=error("ToolValidationError", f"not run: {refusal}") if refusal else None,
            )
        )
    return made


def _execution(run: Running, call: NewCall) -> ToolExecution:
    """The row of a call as it was just stored."""
    execution = ToolExecution(
        id=call.id,
        turn_id=run.turn.pk,
        tool_name=call.tool_name,
        tool_call_id=call.tool_call_id,
        call_key=call.call_key,
        ordinal=call.ordinal,
        status=call.status,
        is_replay_safe=call.is_replay_safe,
        arguments_text=call.arguments_text,
        error=call.error,
    )
    # Tools see this row; its times are the database's, a moment earlier than these.
    execution.created_at = timezone.now()
    execution.started_at = execution.created_at if call.status == ToolState.RUNNING else None
    execution._state.adding = False
    execution._state.db = connections.alias()
    return execution


def _put_off(run: Running, problem: TransientModelError) -> bool:
    """Park a background turn; nobody comes back to one that runs in the calling process."""
    failures = run.turn.model_failures + 1
    if not run.turn.is_background or failures > conf.get().MODEL_RETRIES:
        return _give_up(run, problem, _end_of(problem))
    seconds = retry_delay(failures, retry_after=problem.retry_after, longest=conf.get().MAX_RETRY_AFTER)
    transitions.park(
        run.held.claim,
        error=_as_error(problem, failed_attempts=[*_failed_attempts(run), _attempt(run, problem)]),
        seconds=seconds,
        attempt=_end_of(problem),
        usage=problem.usage,
    )
    return False


def _failed_attempts(run: Running) -> list[Json]:
    """Tries of the open model call that failed; the row keeps them until an answer does."""
    if not run.turn.model_failures:
        return []
    kept = cast("Mapping[str, Mapping[str, list[Json]]]", run.turn.error or {})
    return list(kept.get("details", {}).get("failed_attempts", []))


def _attempt(run: Running, problem: TransientModelError) -> dict[str, Json]:
    told = _as_error(problem)
    at = run.turn.attempt_started_at
    message = str(told["message"])[:_LONGEST_ATTEMPT]
    return {"type": told["type"], "message": message, "started_at": at.isoformat() if at else None}


def _end_of(problem: ModelError) -> AttemptEnd:
    return AttemptEnd.LOST if problem.is_lost else AttemptEnd.REFUSED


def _give_up(run: Running, problem: Exception, attempt: AttemptEnd) -> bool:
    usage = getattr(problem, "usage", None)
    earlier = _failed_attempts(run)
    why = _as_error(problem, failed_attempts=earlier) if earlier else _as_error(problem)
    transitions.fail(run.held.claim, error=why, attempt=attempt, usage=usage)
    return False


def _as_error(problem: Exception, **details: Json) -> dict[str, Json]:
    status_code = getattr(problem, "status_code", None)
    return error(type(problem).__name__, str(problem), status_code=status_code, **details)
