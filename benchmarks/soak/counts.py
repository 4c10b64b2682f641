"""The figures of the report."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Max, Q, Sum

from benchmarks.soak.load import Ledger
from benchmarks.soak.models import Mark
from benchmarks.soak.rules import cut_off
from turnkit_django.models import Conversation, Delivery, Message, ToolExecution, Turn, Wait


def counts(ledger: Ledger) -> dict[str, int]:
    """What is in the database, by name."""
    is_child = Q(parent__isnull=False)
    is_root = Q(submission_key__isnull=False)
    turns = Turn.objects.aggregate(
        turns=Count("pk"),
        submitted=Count("pk", filter=is_root),
        children=Count("pk", filter=is_child),
        continuations=Count("pk", filter=~is_child & ~is_root),
        completed=Count("pk", filter=Q(status="completed")),
        failed=Count("pk", filter=Q(status="failed")),
        recovered=Count("pk", filter=Q(attempts__gt=0)),
        most=Max("attempts"),
        unknown=Sum("unknown_attempts"),
    )
    return {
        "turns": turns["turns"],
        "of them submitted by the application": turns["submitted"],
        "of them children": turns["children"],
        "of them continuations, which read messages": turns["continuations"],
        "turns completed": turns["completed"],
        "turns failed, as their tasks say": turns["failed"],
        "turns taken from a dead worker": turns["recovered"] or 0,
        "most deaths of workers in one turn": turns["most"] or 0,
        "model calls whose answer was lost": turns["unknown"] or 0,
        **_tool("unsafe"),
        "calls of unsafe with an unknown outcome": _calls("unsafe", status="interrupted"),
        **_tool("safe"),
        "calls of either that failed as they lost the database": cut_off("safe").count() + cut_off("unsafe").count(),
        "launched and awaited with wait_for": _calls("wait_for", status="completed"),
        "turns that the application made wait for others": _waiting().count(),
        "such waits that were refused as a cycle": ledger.refused_waits,
        "messages sent": Delivery.objects.count(),
        "of them by agents": Delivery.objects.filter(key__startswith="message:").count(),
        "of them callbacks": Delivery.objects.filter(key__startswith="completion:").count(),
        "messages delivered and read": Delivery.objects.exclude(message=None).exclude(request_id="").count(),
        "conversations": Conversation.objects.count(),
        "rows of transcripts": Message.objects.count(),
        "acts of the application that were repeated, as the database was lost": ledger.repeated,
    }


def _tool(name: str) -> dict[str, int]:
    marks = Mark.objects.filter(tool=name)
    return {
        f"calls of {name}": _calls(name),
        f"its bodies begun ({name})": marks.filter(kind=Mark.Kind.BEGUN).count(),
        f"its effects ({name})": marks.filter(kind=Mark.Kind.EFFECT).count(),
    }


def _calls(tool: str, **which: Any) -> int:
    return ToolExecution.objects.filter(tool_name=tool, **which).count()


def _waiting() -> Any:
    return Wait.objects.filter(tool_execution=None).values("turn").distinct()
