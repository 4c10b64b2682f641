"""A turn's or a conversation's messages as steps: what was said, what a model call cost, what became of a tool call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Protocol

from django.db.models import QuerySet
from django.db.models.fields.json import KeyTextTransform

from turnkit_django.admin import display
from turnkit_django.admin.display import Value
from turnkit_django.models.message import Role

_WHOLE = 20_000  # a message of no more characters is taken apart; a longer one is shown as its beginning
_MOST_PARTS = 50
_RESULT_SIDE = "tool_execution__"
_SPEAKERS = {Role.USER.value: "User", Role.ASSISTANT.value: "Model", Role.TOOL.value: "Tool result"}


class Links(Protocol):
    """Where the pages of rows are, and their values as a whole: see `RowAdmin`."""

    def link(self, kind: str, key: str | None) -> str: ...

    def value_url(self, key: str, column: str, *, kind: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Shown:
    """A value under a heading; a folded one is opened by the reader."""

    label: str
    value: Value
    is_folded: bool = True


@dataclass(frozen=True, slots=True)
class Step:
    """One entry of a timeline.

    Attributes:
        number: Of the message in its conversation; None for a call that has no result yet.
        when: The time, as HTML.
        link: To the page of the row that it shows.
        state: Of a tool call.
        facts: Short ones, such as tokens and cost.
    """

    number: int | None
    heading: str
    when: str
    link: str
    state: str = ""
    facts: list[tuple[str, str]] = field(default_factory=list)
    values: list[Shown] = field(default_factory=list)


def message_steps(messages: Iterable[Mapping[str, Any]], links: Links) -> list[Step]:
    """Steps of rows that `message_rows` gives."""
    return [
        _call_step(row, links, side=_RESULT_SIDE) if row["tool_execution_id"] else _said(row, links) for row in messages
    ]


def call_steps(executions: Iterable[Mapping[str, Any]], links: Links) -> list[Step]:
    """Steps of rows that `call_rows` gives: calls without a result message."""
    return [_call_step(row, links, side="") for row in executions]


def message_rows(messages: QuerySet[Any, Any]) -> QuerySet[Any, Any]:
    """What a page shows of messages, cut by the database; a tool's result comes from its execution."""
    rows = messages.annotate(
        **display.cut("content", "said", limit=_WHOLE), **display.cut("metadata", "noted"), **_call_cuts(_RESULT_SIDE)
    )
    columns = ("pk", "sequence", "role", "kind", "created_at", "tool_execution_id")
    cuts = ("said_text", "said_length", "noted_text", "noted_length")
    shown: QuerySet[Any, Any] = rows.values(*columns, *cuts, *_call_columns(_RESULT_SIDE))
    return shown


def call_rows(executions: QuerySet[Any, Any]) -> QuerySet[Any, Any]:
    """What a page shows of executions."""
    shown: QuerySet[Any, Any] = executions.annotate(**_call_cuts("")).values("pk", *_call_columns(""))
    return shown


_CUT_OF_CALLS = ("tool_name", "arguments_text", "result")
_PLAIN_OF_CALLS = ("status", "is_replay_safe", "approval", "created_at", "started_at", "completed_at")


def _call_cuts(side: str) -> dict[str, Any]:
    cuts: dict[str, Any] = {}
    for name in _CUT_OF_CALLS:
        limit = display.SHORT if name == "tool_name" else display.PREVIEW
        cuts |= display.cut(f"{side}{name}", f"call_{name}", limit=limit)
    for name in ("type", "message", "details"):
        limit = 10 * display.PREVIEW if name == "details" else display.PREVIEW
        cuts |= display.cut(KeyTextTransform(name, f"{side}error"), f"error_{name}", limit=limit)
    return cuts


def _call_columns(side: str) -> list[str]:
    return [*_call_cuts(side), *(f"{side}{name}" for name in _PLAIN_OF_CALLS)]


def _said(row: Mapping[str, Any], links: Links) -> Step:
    url = links.value_url(row["pk"], "content", kind="message")
    noted = _json(display.taken(row, "noted"))
    return Step(
        number=row["sequence"],
        heading=_SPEAKERS.get(row["role"], row["role"])
        + (f": {row['kind'].replace('_', ' ')}" if row["kind"] != "text" else ""),
        when=display.moment(row["created_at"]),
        link=links.link("message", row["pk"]),
        facts=attempt_facts(noted) if isinstance(noted, dict) and row["role"] == Role.ASSISTANT else [],
        values=_parts(display.taken(row, "said", url=url)),
    )


def attempt_facts(noted: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is known of the model call that an assistant message came from. Each of it may be missing."""
    facts = [("model", noted.get("model")), ("ended by", noted.get("finish_reason"))]
    usage = noted.get("usage")
    if isinstance(usage, dict):
        facts += [(name.removesuffix("_tokens").replace("_", " "), count) for name, count in usage.items() if count]
    if "cost" in noted:
        facts.append(("cost", display.money(_amount(noted["cost"]))))
    if isinstance(noted.get("seconds"), int | float):
        facts.append(("took", display.seconds(noted["seconds"])))
    facts.append(("request", noted.get("request_id")))
    facts += [("failed before", _failure(each)) for each in _listed(noted.get("failed_attempts"))]
    return [(name, display.short(str(value))) for name, value in facts[:20] if value not in (None, "")]


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _failure(attempt: object) -> str:
    if not isinstance(attempt, dict):
        return ""
    return f"{attempt.get('type', '')}: {attempt.get('message', '')} ({attempt.get('started_at') or 'no time'})"


def _amount(cost: object) -> Decimal | None:
    try:
        amount = Decimal(str(cost))
    except InvalidOperation:
        return None
    return amount if amount.is_finite() and abs(amount.adjusted()) < 30 else None


def _parts(content: Value) -> list[Shown]:
    parts = _json(content)
    if not isinstance(parts, list):
        cut = Value((content.text or "")[: display.PREVIEW], content.length, content.url)
        return [Shown("Content", cut, is_folded=False)]
    shown = [_part(part, content.url) for part in parts[:_MOST_PARTS]]
    if len(parts) > _MOST_PARTS:
        shown.append(Shown(f"{len(parts) - _MOST_PARTS} more parts", Value("", content.length, content.url)))
    return shown


def _part(part: object, url: str) -> Shown:
    match part:
        case {"type": "text", "text": str(text)}:
            return Shown("Text", display.cut_text(text, url=url), is_folded=False)
        case {"type": "thinking", "text": str(text)}:
            return Shown("Thinking", display.cut_text(text, url=url))
        case {"type": "tool_call", "name": str(name), "arguments": str(arguments)}:
            return Shown(f"Asks for {display.short(name)}", display.cut_text(arguments, url=url))
        case {"type": "tool_result", "text": str(text)}:
            return Shown("Result", display.cut_text(text, url=url))
        case {"type": "provider"}:
            return Shown("State of the provider", display.cut_text(_dumped(part), url=url))
    return Shown("Part of another kind", display.cut_text(_dumped(part), url=url))


def _call_step(row: Mapping[str, Any], links: Links, *, side: str) -> Step:
    key = row["tool_execution_id"] if side else row["pk"]

    def value(name: str) -> Value:
        return display.taken(row, f"call_{name}", url=links.value_url(key, name, kind="toolexecution"))

    values = [Shown("Arguments", value("arguments_text")), Shown("Result", value("result"))]
    values = [shown for shown in values if shown.value.length]
    values += error_values(row, "error", url=links.value_url(key, "error", kind="toolexecution"))
    return Step(
        number=row["sequence"] if side else None,
        heading=f"Tool call: {display.short(row['call_tool_name_text'])}",
        when=display.moment(row[f"{side}created_at"]),
        link=links.link("toolexecution", key),
        state=row[f"{side}status"],
        facts=_call_facts(row, side),
        values=values,
    )


def _call_facts(row: Mapping[str, Any], side: str) -> list[tuple[str, str]]:
    facts = []
    started, ended = row[f"{side}started_at"], row[f"{side}completed_at"]
    if started and ended:
        facts.append(("took", display.seconds((ended - started).total_seconds())))
    elif started:
        facts.append(("started", display.age(started)))
    if row[f"{side}is_replay_safe"]:
        facts.append(("replay-safe", "yes"))
    if row[f"{side}approval"]:
        facts.append(("approval", row[f"{side}approval"]))
    return facts


def error_values(row: Mapping[str, Any], name: str, *, url: str) -> list[Shown]:
    """An error's message, and its details for people, folded."""
    kind, message, details = (display.taken(row, f"{name}_{part}", url=url) for part in ("type", "message", "details"))
    shown = []
    if kind.text or message.text:
        label = f"Error: {display.short(kind.text)}"
        shown.append(Shown(label, message, is_folded=False))
    if details.text not in (None, "{}"):
        shown.append(Shown("Details of the error", _unwrapped(details)))
    return shown


def _unwrapped(details: Value) -> Value:
    """A traceback with line ends instead of as JSON."""
    found = _json(details)
    if isinstance(found, dict) and isinstance(found.get("traceback"), str):
        return display.cut_text(found["traceback"], url=details.url, limit=10 * display.PREVIEW)
    return details


def _json(value: Value) -> object:
    """The parsed value; None if it was cut or cannot be read."""
    try:
        return None if value.is_cut or value.text is None else json.loads(value.text)
    except (ValueError, RecursionError):
        return None


def _dumped(part: object) -> str:
    try:
        return json.dumps(part, ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return "nested too deep to be shown"
