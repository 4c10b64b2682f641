"""What models send that they should not: one table, run through a scripted client and over real HTTP."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from turnkit_django import Agent, register, tool
from turnkit_django.agents import registry
from turnkit_django.models import Conversation, Turn
from turnkit_django.testing import assert_clean, call, model_server, raw, text
from turnkit_django.testing.clients import ScriptedModel

runs: list[object] = []


@tool
def ping(n: int | None = None) -> dict[str, object]:
    """Count; every parameter is optional."""
    runs.append(n)
    return {"n": n}


@tool
def need(order: str) -> str:
    """Needs its parameter."""
    runs.append(order)
    return f"got {order}"


@tool
def nothing(kind: str) -> object:
    """Return nothing in one of several ways."""
    runs.append(kind)
    return {"none": None, "text": "", "list": [], "dict": {}}[kind]


@tool
def cat(path: str) -> object:
    """Return, or fail with, a NUL and a lone surrogate."""
    runs.append(path)
    if path == "fail":
        raise RuntimeError("f\x00\ud800")
    return {"k\x00": ["v\x00", "\ud800"]}


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Agent:
    monkeypatch.setattr(registry, "_agents", dict(registry._agents))
    runs.clear()
    return register(
        Agent(
            name="probe",
            model="openai/gpt-5-mini",
            tools=[ping, need, nothing, cat],
            max_output_tokens=300,
            max_iterations=9,
        )
    )


def proposal(*calls: tuple[Any, Any, Any], finish: str | None = "tool_calls", content: Any = None, **more: Any) -> Any:
    """A choice that proposes calls, each given as id, name and arguments text."""
    made = [{"id": id, "type": "function", "function": {"name": name, "arguments": args}} for id, name, args in calls]
    return raw({"finish_reason": finish, "message": {"content": content, "tool_calls": made}, **more})


def spoken(content: Any, *, finish: str | None = "stop", **message: Any) -> Any:
    return raw({"finish_reason": finish, "message": {"content": content, **message}})


def used(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def empty_choices(choices: object) -> Any:
    return raw({"id": "x", "object": "chat.completion", "created": 1, "choices": choices, "usage": used(12, 0)})


@dataclass(frozen=True)
class Case:
    """What comes, and what must become of it. `told` is looked for in the tool messages, in call order."""

    name: str
    script: list[Any]
    requests: int
    calls: list[str] = field(default_factory=list)
    runs: list[object] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    output: str = "fine"
    error: str = ""
    says: str = ""
    tokens: tuple[int, int] | None = None


OK, BAD, UNKNOWN = "completed", "failed ToolValidationError", "failed UnknownTool"
CUT_CALL = ("c", "need", '{"order": "# Title\\nlong')
FINE = text("fine")
LONG = ["functions.search:0" + "x" * 80 + end for end in "AB"]

CASES = [
    Case(
        "B01 cut-off arguments never become a call without arguments",
        [call("ping", '{"n": 1'), call("ping", {"n": 12}), FINE],
        requests=3,
        calls=[BAD, OK],
        runs=[12],
        told=["not valid JSON", '{"n": 12}'],
    ),
    Case(
        "B02 a cut that the server hides is told as a cut, and three of them end the turn",
        [proposal(CUT_CALL, usage=used(prompt, 300)) for prompt in (50, 60, 70)],
        requests=3,
        calls=[BAD, BAD, "cancelled Cancelled"],
        told=["cut off by the output limit", "cut off by the output limit", "it did not run"],
        error="UnfinishedAnswer",
        says="cut off by the output limit (300 tokens), 3 times in a row",
        tokens=(180, 900),
    ),
    Case(
        "length with whole arguments: nothing of that batch runs",
        [proposal(("c1", "ping", "{}"), ("c2", "ping", '{"n": 2}'), finish="length"), FINE],
        requests=2,
        calls=[BAD, BAD],
        told=["cut off", "cut off"],
    ),
    Case(
        "length with text: never published, asked again",
        [spoken("half a sen", finish="length"), FINE],
        requests=2,
    ),
    Case(
        "length without text, three times",
        [spoken("", finish="length")] * 3,
        requests=3,
        error="UnfinishedAnswer",
        says="cut off by the output limit (300 tokens), 3 times in a row",
    ),
    Case(
        "B04 empty, null and blank arguments are no arguments",
        [
            proposal(("c1", "ping", ""), ("c2", "ping", None), ("c3", "ping", "  \n"), ("c4", "need", "")),
            FINE,
        ],
        requests=2,
        calls=[OK, OK, OK, BAD],
        runs=[None, None, None],
        told=['{"n": null}'] * 3 + ["order"],
    ),
    Case(
        "B04 JSON that is no object is refused",
        [proposal(*[(f"c{n}", "ping", args) for n, args in enumerate(["null", "[]", "5", '"x"', "true"])]), FINE],
        requests=2,
        calls=[BAD] * 5,
        told=["got a JSON null", "got a JSON list", "got a JSON number", "got a JSON string", "got a JSON boolean"],
    ),
    Case(
        "B05 glued control tokens and placeholders",
        [call("ping", '{"n": 4}<|call|>'), call("ping", '{"n":?}'), call("need", '{"order": "<|call|>"}'), FINE],
        requests=4,
        calls=[BAD, BAD, OK],
        runs=["<|call|>"],
        told=["make one call for each object", "not valid JSON", "got <|call|>"],
    ),
    Case(
        "B07 two objects glued into one call",
        [call("need", '{"order":"A"}{"order":"B"}'), FINE],
        requests=2,
        calls=[BAD],
        told=["make one call for each object"],
    ),
    Case(
        "B08 an unknown tool is answered with the real names",
        [[call("pign", {}), call("ping", {"n": 1}), call("", {}), call("do it!", {})], FINE],
        requests=2,
        calls=[UNKNOWN, OK, UNKNOWN, UNKNOWN],
        runs=[1],
        told=["Tools: cat, need, nothing, ping", '{"n": 1}', "There is no tool ''", "There is no tool 'do it!'"],
    ),
    Case(
        "B10 a finish for calls without any: one more try, not the limit",
        [spoken("", finish="tool_calls", tool_calls=[]), spoken("", finish="tool_calls")],
        requests=2,
        error="UnfinishedAnswer",
        says="the model answered nothing (finish reason 'tool_calls'), 2 times in a row",
    ),
    *[
        Case(
            f"B11 calls count whatever the finish reason says ({finish})",
            [
                proposal(
                    *[(f"c{n}", "ping", json.dumps({"n": n})) for n in (1, 2, 3)], finish=finish, content="I will."
                ),
                FINE,
            ],
            requests=2,
            calls=[OK] * 3,
            runs=[1, 2, 3],
            told=['{"n": 1}', '{"n": 2}', '{"n": 3}'],
        )
        for finish in ("stop", "eos", None)
    ],
    Case("a foreign finish reason with text is an answer", [spoken("fine", finish="eos")], requests=1),
    Case(
        "B13 no choices, then an answer; the usage is booked",
        [empty_choices([]), FINE],
        requests=2,
        tokens=(112, 20),
    ),
    Case(
        "B13 choices null, twice",
        [empty_choices(None)] * 2,
        requests=2,
        error="UnfinishedAnswer",
        says="the model answered nothing",
        tokens=(24, 0),
    ),
    Case(
        "B13 an error inside a 200 is an error of the provider, final inline",
        [raw({"error": {"message": "upstream overloaded", "code": 529}})],
        requests=1,
        error="TransientModelError",
        says="upstream overloaded",
        tokens=(0, 0),
    ),
    *[
        Case(
            f"B14 {name}: not asked again",
            [answer],
            requests=1,
            calls=["cancelled Cancelled"] if name == "blocked with a call" else [],
            told=["it did not run"] if name == "blocked with a call" else [],
            error="Refused",
            says=says,
        )
        for name, answer, says in [
            ("blocked", spoken(None, finish="content_filter"), "the model refused or its answer was blocked"),
            ("refused", spoken(None, refusal="I cannot help with that"), "I cannot help with that"),
            ("blocked half way", spoken("Here is how", finish="content_filter"), "blocked"),
            ("blocked with a call", proposal(("c1", "ping", "{}"), finish="content_filter"), "blocked"),
        ]
    ],
    Case(
        "B16 empty, missing and equal ids",
        [
            proposal(
                ("", "ping", '{"n":1}'), ("", "ping", '{"n":2}'), ("x", "ping", '{"n":3}'), ("x", "ping", '{"n":4}')
            ),
            FINE,
        ],
        requests=2,
        calls=[OK] * 4,
        runs=[1, 2, 3, 4],
        told=['{"n": 1}', '{"n": 2}', '{"n": 3}', '{"n": 4}'],
    ),
    Case(
        "B17 ids that are too long or hold dots and colons",
        [
            proposal(*[(each, "ping", "{}") for each in LONG]),
            proposal(("y" * 5000, "ping", "{}"), (LONG[0], "ping", "{}")),
            FINE,
        ],
        requests=3,
        calls=[OK] * 4,
        runs=[None] * 4,
        told=['{"n": null}'] * 4,
    ),
    Case(
        "B22 an empty text beside a call, then a blank answer",
        [proposal(("c1", "ping", "{}"), content=""), spoken("  \n")],
        requests=2,
        calls=[OK],
        runs=[None],
        told=['{"n": null}'],
        output="",
    ),
    Case(
        "B23 a tool that returns nothing has run, and the model is told so",
        [[call("nothing", {"kind": kind}) for kind in ("none", "text", "list", "dict")], FINE],
        requests=2,
        calls=[OK] * 4,
        runs=["none", "text", "list", "dict"],
        told=['{"result": null}', '{"result": ""}', '{"items": []}', "{}"],
    ),
    Case(
        "B52 NUL and lone surrogates in text, arguments, results and errors",
        [
            proposal(
                ("c\x00", "cat", '{"path": "a\\u0000\\ud800b"}'), ("d", "cat", '{"path": "fail"}'), content="x\x00y"
            ),
            text("fi\x00ne"),
        ],
        requests=2,
        calls=[OK, "failed RuntimeError"],
        runs=["a\ufffd\ufffdb", "fail"],
        told=['{"k\ufffd": ["v\ufffd", "\ufffd"]}', "RuntimeError: f\ufffd\ufffd"],
        output="fi\ufffdne",
    ),
]


def check(case: Case, turn: Turn, *, requests: int) -> None:
    """The turn, its calls, its ledger and what the model was told are as the case says."""
    executions = list(turn.tool_executions.order_by("ordinal"))
    error = turn.error or {"type": "", "message": ""}
    assert (turn.status, turn.output_text, error["type"], requests, runs) == (
        "failed" if case.error else "completed",
        "" if case.error else case.output,
        case.error,
        case.requests,
        case.runs,
    ), turn.error
    assert case.says in error["message"]
    outcomes = [f"{row.status} {row.error['type']}" if row.error else row.status for row in executions]
    assert outcomes == case.calls, [row.error for row in executions]
    used_tokens = turn.usage.input_tokens, turn.usage.output_tokens + turn.usage.thinking_tokens
    assert used_tokens == (case.tokens or (100 * case.requests, 20 * case.requests))
    results = turn.messages.filter(role="tool").order_by("tool_execution__ordinal")
    assert len(results) == len(case.told)
    for message, told in zip(results, case.told, strict=True):
        assert told in message.content[0]["text"]


def follow_up(conversation: Conversation) -> None:
    turn = conversation.ask("And now?")
    assert (turn.status, turn.output_text) == ("completed", "done"), turn.error


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.django_db
def test_hostile_output(case: Case, probe: Agent, turnkit_model: Callable[[Any], ScriptedModel]):
    model = turnkit_model(case.script)
    conversation = probe.conversation()
    check(case, conversation.ask("please"), requests=len(model.requests))
    follow_up(conversation)
    results = [message for message in model.requests[-1].messages if message["role"] == "tool"]
    assert (len(results), model.violations, model.overrun) == (len(case.calls), [], 1)
    assert_clean(model=model)


OVER_HTTP = ("B01", "B02", "B04 empty", "B1", "B2", "B52", "length with text")


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name.startswith(OVER_HTTP)], ids=lambda case: case.name
)
@pytest.mark.django_db
def test_hostile_output_over_http(case: Case, probe: Agent, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with model_server(case.script) as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.base_url)
        conversation = probe.conversation()
        check(case, conversation.ask("please"), requests=len(server.requests))
        follow_up(conversation)
    assert (server.violations, server.overrun) == ([], 1)
    assert_clean(model=server)
