"""What must hold when nothing is due any more: the ledger of the application against the rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from django.db.models import Q

from benchmarks.soak.load import Ledger
from benchmarks.soak.model import CHILDREN, SAFE, UNSAFE
from benchmarks.soak.models import Mark
from turnkit_django.models import Delivery, Message, ToolExecution, Turn, Wait

_DATABASE_ERRORS = ("OperationalError", "InterfaceError")


def every_turn_ends(ledger: Ledger) -> Iterator[str]:
    """Each task has one turn, and each turn has ended as its task says."""
    roots = Turn.objects.exclude(submission_key=None)
    yield from _differences("task", ledger.tasks, roots.values_list("submission_key", flat=True))
    for turn in Turn.objects.select_related("trigger"):
        task = turn.trigger.text if turn.trigger else ""
        expected = "failed" if task.startswith("refuse ") else "completed"
        if turn.status != expected:
            yield f"{turn.pk} ({task!r:.40}) is {turn.status}, expected {expected}: {turn.error}"
        elif turn.submission_key and turn.output_text != f"done {turn.submission_key}":
            yield f"{turn.pk} ({task!r:.40}) answers {turn.output_text!r:.80}"


def unknown_at_most_once(ledger: Ledger) -> Iterator[str]:
    """No body of unknown recovery began twice, for a key or for a task; where the call is completed, it took effect."""
    expected = ledger.numbers(UNSAFE)
    yield from _calls("unsafe", expected)
    for kind in Mark.Kind.values:
        yield from _marks_twice("unsafe", kind)
    completed = ToolExecution.objects.filter(tool_name="unsafe", status="completed")
    effects = set(_effects("unsafe"))
    yield from (f"task {n} has no effect" for n in _numbers(completed) if n not in effects)
    yield from (f"task {n} was not asked for" for n in effects - expected)


def replay_safe_exactly_once(ledger: Ledger) -> Iterator[str]:
    """Each took effect once, under one key. A call that failed as its body lost the database may have none."""
    expected = ledger.numbers(SAFE)
    yield from _calls("safe", expected)
    yield from _marks_twice("safe", Mark.Kind.EFFECT)
    keys = set(Mark.objects.filter(tool="safe").values_list("n", "key"))
    yield from (f"task {n} has more than one key" for n in _repeated(n for n, _ in keys))
    effects = set(_effects("safe"))
    yield from (f"task {n} has no effect" for n in expected - effects - set(_numbers(cut_off("safe"))))
    yield from (f"task {n} was not asked for" for n in effects - expected)


def cut_off(tool: str) -> Any:
    """Calls whose body failed as it lost the database."""
    return ToolExecution.objects.filter(tool_name=tool, status="failed", error__type__in=_DATABASE_ERRORS)


def no_message_is_lost(ledger: Ledger) -> Iterator[str]:
    """Each that was sent stands in its transcript, and a turn has read it."""
    yield from _differences("message", _sent(ledger), Delivery.objects.values_list("key", flat=True))
    for delivery in Delivery.objects.filter(Q(message=None) | Q(delivered_at=None) | Q(request_id="")):
        state = "read" if delivery.message_id else "delivered"
        yield f"{delivery.pk} ({delivery.text!r:.40}) was not {state}: {delivery.error}"


def _sent(ledger: Ledger) -> Iterator[str]:
    """The keys of all messages."""
    yield from map(str, ledger.messages)
    tells = ToolExecution.objects.filter(tool_name="send_message", turn__submission_key__in=_keys(ledger, "tell"))
    yield from (f"message:{pk}" for pk in tells.values_list("pk", flat=True))
    told = Turn.objects.filter(submission_key__in=[str(number) for number in ledger.told])
    launched = Turn.objects.filter(parent__submission_key__in=_keys(ledger, "callback"))
    yield from (f"completion:{pk}" for pk in (told | launched).values_list("pk", flat=True))


def _keys(ledger: Ledger, kind: str) -> list[str]:
    return [str(number) for number in ledger.numbers(frozenset({kind}))]


def no_message_stands_twice(ledger: Ledger) -> Iterator[str]:
    """What was said stands once in all transcripts; whoever waited was told the results once."""
    told = Message.objects.filter(metadata__has_key="delivery_id").values_list("metadata__delivery_id", flat=True)
    yield from _differences("delivery", Delivery.objects.values_list("pk", flat=True), told)
    said = [message for message in Message.objects.filter(role="user") if "wait_results" not in message.text]
    yield from (f"{text!r:.80} stands twice" for text in _repeated(message.text for message in said))
    results = [message for message in Message.objects.filter(role="user") if "wait_results" in message.text]
    waits = Wait.objects.filter(tool_execution=None).values_list("turn", flat=True).distinct()
    yield from _differences("results for", waits, (message.turn_id for message in results))


def each_launch_has_one_child(ledger: Ledger) -> Iterator[str]:
    """As many children as the tasks ask for, one a call, and the call tells of that one."""
    children = list(Turn.objects.exclude(parent=None).select_related("parent_execution"))
    yield from (
        f"{call} has more than one child" for call in _repeated(child.parent_execution_id for child in children)
    )
    expected = sum(CHILDREN.get(kind, 0) for kind in ledger.tasks.values())
    if len(children) != expected:
        yield f"{len(children)} children, expected {expected}"
    for child in children:
        call = child.parent_execution
        told = call.result or {}
        # A detached launch tells how far the child is at that moment: further than `pending` if its worker died.
        knows_end = call.tool_name == "launch_agent" or told.get("status") == child.status
        if told.get("turn_id") != child.pk or not knows_end:
            yield f"{call.pk} tells {call.result!r:.200}, its child {child.pk} is {child.status}"


RULES = {
    "every turn ends as its task says": every_turn_ends,
    "effects of unknown recovery happen at most once": unknown_at_most_once,
    "effects of replay-safe tools happen exactly once by key": replay_safe_exactly_once,
    "no message is lost": no_message_is_lost,
    "no message stands twice": no_message_stands_twice,
    "each launch has one child": each_launch_has_one_child,
}


def _calls(tool: str, expected: set[int]) -> Iterator[str]:
    """Each task asks for its tool once."""
    yield from _differences(
        f"call of {tool} for task", expected, _numbers(ToolExecution.objects.filter(tool_name=tool))
    )


def _numbers(calls: Any) -> list[int]:
    return [json.loads(call.arguments_text)["n"] for call in calls]


def _effects(tool: str) -> Any:
    return Mark.objects.filter(tool=tool, kind=Mark.Kind.EFFECT).values_list("n", flat=True)


def _marks_twice(tool: str, kind: str) -> Iterator[str]:
    for column in ("key", "n"):
        marks = Mark.objects.filter(tool=tool, kind=kind).values_list(column, flat=True)
        yield from (f"{tool} {kind} more than once for {column} {value}" for value in _repeated(marks))


def _repeated(values: Iterable[Any]) -> list[Any]:
    return [value for value, count in Counter(values).items() if count > 1]


def _differences(what: str, expected: Iterable[Any], found: Iterable[Any]) -> Iterator[str]:
    wanted, there = Counter(map(str, expected)), Counter(map(str, found))
    for value in wanted | there:
        if wanted[value] != there[value]:
            yield f"{what} {value} is there {there[value]} times, expected {wanted[value]}"
