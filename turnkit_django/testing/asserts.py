"""`assert_clean`: what must hold of the database when nothing more is due."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from django.db import models, transaction
from django.db.models import Count, Q, QuerySet

from turnkit_django import conf
from turnkit_django.agents import get_agent
from turnkit_django.clients.chat import form_for, request_body
from turnkit_django.core.content import text_part
from turnkit_django.core.ids import new_message_id, new_turn_id
from turnkit_django.core.states import OPEN, TERMINAL, TurnState
from turnkit_django.engine import reconcile
from turnkit_django.engine.model_call import request_for
from turnkit_django.models import Conversation, Delivery, Message, ToolExecution, Turn, Wait
from turnkit_django.models.querysets import StatementTime
from turnkit_django.store import connections, reads, transitions
from turnkit_django.testing.strict import check_request

if TYPE_CHECKING:
    from turnkit_django.testing.clients import ScriptedModel

_MODELS: tuple[type[models.Model], ...] = (Conversation, Turn, Message, ToolExecution, Delivery, Wait)


class _RolledBack(Exception):
    """Ends the trial of a next message without a trace."""


def assert_clean(*conversations: Conversation, model: ScriptedModel | None = None) -> None:
    """Check the rules that every database must obey once nothing more is due.

    1. No turn runs without a live claim, every open turn has a reason in the database to be looked at again, and counts
       the turns that it waits for.
    2. Every proposed call has one execution and one result; a started one has exactly one outcome.
    3. Usage equals what the model handed out (with `model`; not more, where a call was lost), and the API's sums agree
       with the rows.
    4. One more maintenance pass changes no row and makes no model call.
    5. Each completed turn has one answer, stored once; message numbers have no gap and no repeat. Each delivered
       message stands once in the transcript, and a conversation counts its unread ones.
    6. A new user message would make a request that the strictest provider accepts.

    Args:
        conversations: What to check; all if none is given.
        model: The script that answered, and nothing else did.

    Raises:
        AssertionError: Lists every broken rule with the ids of the rows.
    """
    chosen = Conversation.objects.using(connections.alias()).order_by("pk")
    if conversations:
        chosen = chosen.filter(pk__in=[conversation.pk for conversation in conversations])
    turns = Turn.objects.using(connections.alias()).filter(conversation__in=chosen)
    found = [
        *_open_turns(turns),
        *_waits(turns),
        *_calls(turns),
        *_ledger(chosen, turns, model),
        *_maintenance(model),
        *_answers(turns),
        *(problem for conversation in chosen for problem in _numbers(conversation)),
        *(problem for conversation in chosen for problem in _inbox(conversation)),
        *(problem for conversation in chosen for problem in _next_message(conversation)),
        *([f"V {violation}" for violation in model.violations] if model else []),
    ]
    assert not found, "the database is not clean:\n" + "\n".join(found)


def _open_turns(turns: QuerySet[Turn]) -> Iterator[str]:
    running = turns.filter(status=TurnState.RUNNING)
    for turn in running.filter(lease_expires_at__lt=StatementTime()):
        yield f"C1 {turn.pk} is running, but its lease ended at {turn.lease_expires_at}"
    reason = Q(not_before__isnull=False) | Q(pending_dependencies__gt=0) | Q(deadline_at__isnull=False)
    for turn in turns.filter(status=TurnState.WAITING).exclude(reason):
        yield f"C1 {turn.pk} is waiting for nothing"
    for turn in turns.filter(status=TurnState.PENDING, started_at__isnull=False, submitted_at__isnull=True):
        yield f"C1 {turn.pk} was started, is pending and was not submitted: nobody will run it"


def _waits(turns: QuerySet[Turn]) -> Iterator[str]:
    awaited = Count("waits", filter=Q(waits__target__status__in=OPEN), distinct=True)
    waiting = Count("waiters", filter=Q(waiters__turn__status__in=OPEN), distinct=True)
    for turn in turns.annotate(awaited=awaited, waiting=waiting):
        found = vars(turn)
        open_targets, waiters = (0, 0) if turn.is_terminal else (found["awaited"], found["waiting"])
        if turn.pending_dependencies != open_targets:
            yield f"C1 {turn.pk} counts {turn.pending_dependencies} dependencies, but {open_targets} are open"
        if turn.open_waiters < waiters:
            yield f"C1 {turn.pk} counts {turn.open_waiters} waiters, but there are {waiters}"


def _calls(turns: QuerySet[Turn]) -> Iterator[str]:
    executions = ToolExecution.objects.using(connections.alias()).filter(turn__in=turns)
    for execution in executions.filter(turn__status__in=TERMINAL, completed_at__isnull=True):
        yield f"C2 {execution.pk} is {execution.status} in a turn that has ended"
    for execution in executions.filter(completed_at__isnull=False, result_messages__isnull=True):
        yield f"C2 {execution.pk} is {execution.status}, but no message tells its result"
    rows = {(execution.turn_id, execution.call_key) for execution in executions}
    for message in Message.objects.using(connections.alias()).filter(turn__in=turns, kind="tool_call"):
        for part in message.content:
            if part["type"] == "tool_call" and (message.turn_id, part["key"]) not in rows:
                yield f"C2 {message.pk} proposes {part['name']!r}, which has no execution"


def _ledger(chosen: QuerySet[Conversation], turns: QuerySet[Turn], model: ScriptedModel | None) -> Iterator[str]:
    total = reads.usage(turns)
    parts = sum((turn.usage for turn in turns), reads.usage(turns.none()))
    if total != parts or total != sum((conversation.usage for conversation in chosen), reads.usage(turns.none())):
        yield f"C3 the sums disagree: {total} in all, {parts} by turns"
    if model is None:
        return
    handed_out = model.usage.total_tokens
    is_right = total.total_tokens <= handed_out if total.unknown_attempts else total.total_tokens == handed_out
    if not is_right:
        yield f"C3 stored {total.as_dict()}, but the script handed out {model.usage.as_dict()}"


def _maintenance(model: ScriptedModel | None) -> Iterator[str]:
    before, calls = _rows(), len(model.requests) if model else 0
    reconcile.run_pass(batch=conf.get().MAINTENANCE_BATCH)
    if model and len(model.requests) != calls:
        yield "C4 a maintenance pass called the model"
    for row in sorted((_rows() - before).keys() | (before - _rows()).keys()):
        yield f"C4 a maintenance pass changed {row[:200]}"


def _rows() -> Counter[str]:
    alias = connections.alias()
    return Counter(
        f"{kind.__name__} {sorted(values.items(), key=str)}"
        for kind in _MODELS
        for values in kind._base_manager.using(alias).values()
    )


def _answers(turns: QuerySet[Turn]) -> Iterator[str]:
    answers_of_models = Message.objects.using(connections.alias()).filter(role="assistant", kind="text")
    final = answers_of_models.exclude(metadata__has_key="finish_reason")
    for turn in turns.filter(status=TurnState.COMPLETED):
        answers = [message.text.strip() for message in final.filter(turn=turn)]
        if answers != [turn.output_text.strip()]:
            yield f"C5 {turn.pk} is completed with {turn.output_text!r:.80}, but its answers are {answers!r:.200}"
    for turn in turns.exclude(status=TurnState.COMPLETED).filter(messages__in=final):
        yield f"C5 {turn.pk} is {turn.status}, but has an answer"


def _numbers(conversation: Conversation) -> Iterator[str]:
    numbers = list(conversation.messages.order_by("sequence").values_list("sequence", flat=True))
    if numbers != list(range(1, len(numbers) + 1)) or conversation.next_sequence != len(numbers) + 1:
        yield f"C5 {conversation.pk}: message numbers are {numbers}, the next one {conversation.next_sequence}"


def _inbox(conversation: Conversation) -> Iterator[str]:
    inbox = Delivery.objects.using(connections.alias()).filter(destination=conversation.pk, target_turn__isnull=True)
    unread = inbox.unread().count()
    if conversation.unread_count != unread:
        yield f"C5 {conversation.pk} counts {conversation.unread_count} unread messages, but {unread} are"
    told = Counter(conversation.messages.filter(metadata__has_key="delivery_id").values_list("metadata__delivery_id"))
    for (delivery_id,), count in told.items():
        if count != 1:
            yield f"C5 {delivery_id} stands {count} times in the transcript of {conversation.pk}"


def _next_message(conversation: Conversation) -> list[str]:
    """Try a next message in a transaction that is rolled back; no model is called."""
    problems: list[str] = []
    try:
        with transaction.atomic(using=connections.alias()):
            problems = _try_next_message(conversation)
            raise _RolledBack
    except _RolledBack:
        return problems
    except Exception as error:  # told with the other broken rules, which may be its cause
        return [f"C6 {conversation.pk}: a next message fails: {type(error).__name__}: {error}"]


def _try_next_message(conversation: Conversation) -> list[str]:
    fresh = Conversation.objects.using(connections.alias()).get(pk=conversation.pk)
    agent = get_agent(fresh.agent_name)
    turn_id = new_turn_id()
    draft = Turn(id=turn_id, root_id=turn_id, conversation=fresh, agent_name=agent.name)
    draft.model = fresh.model or agent.model or conf.get().DEFAULT_MODEL
    draft.max_iterations, draft.max_output_tokens = 1, conf.get().MAX_OUTPUT_TOKENS
    message = Message(id=new_message_id(), conversation=fresh, role="user", content=[text_part("And now?")])
    turn = transitions.start(draft, message=message, is_submission=True)
    form = form_for(draft.model, forms=conf.get().REQUEST_FORMS)
    body = request_body(request_for(turn, agent), provider="", form=form)
    wanted = form.empty_content if form.empty_content == "empty" else None
    return [
        f"C6 {fresh.pk}: {broken}"
        for broken in check_request(body, call_id_pattern=form.call_id_pattern, empty_content=wanted)
    ]
