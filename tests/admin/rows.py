"""Rows for the admin's pages, stored as they are: also such as no transition would make."""

from __future__ import annotations

import itertools
from typing import Any

from django.db import models
from django.db.models.expressions import RawSQL
from django.utils import timezone

from turnkit_django.models import Conversation, Delivery, Message, ToolExecution, Turn, Wait

MODELS = [Conversation, Turn, Message, ToolExecution, Delivery, Wait]
KINDS = [model._meta.model_name for model in MODELS]


def conversation(**columns: Any) -> Conversation:
    return Conversation.objects.create(**{"agent_name": "helper", **columns})


def turn(of: Conversation, **columns: Any) -> Turn:
    """A turn; one that has ended if its status says so."""
    if columns.get("status") in {"completed", "failed", "cancelled", "stale"}:
        columns.setdefault("completed_at", timezone.now())
    needed = {"agent_name": "helper", "model": "openai/gpt-5-mini", "max_iterations": 25, "max_output_tokens": 99}
    return Turn.objects.create(**{"conversation": of, **needed, **columns})


def message(of: Conversation, sequence: int, content: Any, **columns: Any) -> Message:
    return Message.objects.create(**{"role": "user", **columns}, conversation=of, sequence=sequence, content=content)


def execution(of: Turn, ordinal: int, **columns: Any) -> ToolExecution:
    if columns.get("status") in {"completed", "failed", "cancelled", "interrupted"}:
        columns.setdefault("completed_at", timezone.now())
    needed = {"tool_name": "safe", "call_key": f"{ordinal:064}", "ordinal": ordinal}
    return ToolExecution.objects.create(**{"turn": of, **needed, **columns})


def family() -> dict[str, models.Model]:
    """One row of each model, by the model's name, that belong together."""
    lane = conversation()
    first, second = turn(lane, status="completed"), turn(lane)
    call = execution(first, 0, status="completed", result={"n": 1})
    asked = message(lane, 1, [{"type": "text", "text": "please"}], turn=first)
    message(lane, 2, [{"type": "tool_result", "text": "1"}], turn=first, role="tool", tool_execution=call)
    message(lane, 3, [{"type": "text", "text": "done"}], turn=first, role="assistant")
    sent = Delivery.objects.create(source=lane, destination=lane, key="k", text="hello")
    edge = Wait.objects.create(turn=second, target=first)
    return dict(zip(KINDS, [lane, first, asked, call, sent, edge], strict=True))


_numbers = itertools.count()
_CLOSED = {"status", "phase", "role", "kind", "approval", "outcome"}
_INDEXED = {"key", "submission_key", "subject_type", "subject_id"}
_WHOLE = {"claimed_by", "settled_by"}  # with other columns, or null


def fill(row: models.Model, text: str, *, spared: set[str]) -> None:
    """Put a JSON text into every column of the row that holds JSON, and as it is into those that hold any text."""
    free: dict[str, Any] = {}
    for field in row._meta.fields:
        if field.name in _CLOSED | _WHOLE | spared:
            continue
        if isinstance(field, models.JSONField):
            free[field.name] = RawSQL("%s::jsonb", [text])
        elif isinstance(field, models.TextField):
            free[field.name] = f"{text[:1000]}{next(_numbers)}" if field.name in _INDEXED else text
    type(row)._default_manager.filter(pk=row.pk).update(**free)


def blank(row: models.Model) -> None:
    """Null wherever a column of text or JSON may be null, nothing in the others."""
    free = [
        field
        for field in row._meta.fields
        if isinstance(field, models.TextField | models.JSONField) and field.name not in _CLOSED | _INDEXED
    ]
    empty = {field.name: None if field.null else {} if isinstance(field, models.JSONField) else "" for field in free}
    type(row)._default_manager.filter(pk=row.pk).update(**empty)
