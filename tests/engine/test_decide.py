import dataclasses

import pytest

from turnkit_django.core.content import ToolCall
from turnkit_django.core.requests import ModelReply
from turnkit_django.core.states import SETTLED, Phase, ToolState
from turnkit_django.core.usage import Usage
from turnkit_django.engine.decide import (
    CallModel,
    CallView,
    Fail,
    Pause,
    Publish,
    ReplyKind,
    RunTool,
    SkipCall,
    Snapshot,
    Verdict,
    is_json,
    judge,
    next_step,
)

FRESH = Snapshot(
    phase=Phase.MODEL,
    is_pause_requested=False,
    is_reserved=True,
    is_overdue=False,
    max_iterations=7,
    broken_replies=0,
    max_broken_replies=3,
    broken_reason="cut",
    calls=(),
)
DONE, OPEN, BEGUN = CallView("done", "completed"), CallView("open", "pending"), CallView("begun", "running")
LATE = Fail("BudgetError", "turn timed out")
SPENT = Fail("BudgetError", "maximum iterations reached (7)")
BROKEN = Fail("UnfinishedAnswer", "cut, 3 times in a row")


def snapshot(**changes: object) -> Snapshot:
    return dataclasses.replace(FRESH, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("turn", "step"),
    [
        pytest.param(snapshot(), CallModel(), id="a counted model call is sent"),
        pytest.param(snapshot(is_reserved=False), SPENT, id="without one the limit was reached"),
        pytest.param(snapshot(calls=[OPEN]), CallModel(), id="an open call counts in the phase of tools only"),
        pytest.param(snapshot(phase=Phase.TOOLS, calls=[DONE, OPEN]), RunTool("open"), id="the first open call runs"),
        pytest.param(snapshot(phase=Phase.TOOLS, calls=[BEGUN, OPEN]), RunTool("begun"), id="a started one is open"),
        pytest.param(
            snapshot(phase=Phase.TOOLS, calls=[OPEN], is_reserved=False),
            RunTool("open"),
            id="calls run though no model call is left",
        ),
        pytest.param(snapshot(phase=Phase.TOOLS, calls=[DONE]), CallModel(), id="a settled batch asks the model"),
        pytest.param(snapshot(phase=Phase.TOOLS, calls=[DONE], is_reserved=False), SPENT, id="unless none is left"),
        pytest.param(snapshot(phase=Phase.OUTPUT, calls=[DONE, OPEN]), SkipCall("open"), id="siblings are skipped"),
        pytest.param(snapshot(phase=Phase.OUTPUT, calls=[DONE]), Publish(), id="then the completion is published"),
        pytest.param(
            snapshot(phase=Phase.OUTPUT, calls=[DONE], is_reserved=False),
            Publish(),
            id="a finished answer needs no model call",
        ),
        *(
            pytest.param(
                snapshot(is_pause_requested=True, phase=phase, is_overdue=True), Pause(), id=f"pause in {phase}"
            )
            for phase in Phase
        ),
        pytest.param(snapshot(broken_replies=2), CallModel(), id="two broken replies are asked again"),
        pytest.param(snapshot(broken_replies=3), BROKEN, id="three are enough"),
        pytest.param(
            snapshot(broken_replies=4, max_broken_replies=1), Fail("UnfinishedAnswer", "cut, 4 times in a row")
        ),
        pytest.param(snapshot(broken_replies=3, is_reserved=False), BROKEN, id="broken replies go before the limit"),
        pytest.param(
            snapshot(broken_replies=3, phase=Phase.TOOLS, calls=[OPEN]),
            BROKEN,
            id="and before the calls of a cut reply",
        ),
        pytest.param(snapshot(is_overdue=True), LATE, id="the deadline goes before the model"),
        pytest.param(snapshot(is_overdue=True, broken_replies=3), LATE, id="before broken replies"),
        pytest.param(snapshot(is_overdue=True, is_reserved=False), LATE, id="before the limit"),
        pytest.param(snapshot(is_overdue=True, phase=Phase.TOOLS, calls=[OPEN]), LATE, id="before a tool"),
        pytest.param(snapshot(is_overdue=True, phase=Phase.OUTPUT), Publish(), id="but a finished answer is delivered"),
    ],
)
def test_the_next_step_of_a_turn(turn: Snapshot, step: object):
    assert next_step(turn) == step


@pytest.mark.parametrize("status", list(ToolState))
def test_a_call_is_open_until_it_is_settled(status: ToolState):
    call = CallView("x", status)
    assert snapshot(calls=[call]).open_calls == ([] if status in SETTLED else [call])


def reply(text: str = "", *calls: str, finish: str = "stop", produced: int | None = None, **more: object) -> ModelReply:
    usage = None if produced is None else Usage(50, produced, thinking_tokens=0)
    made = tuple(ToolCall("c1", "ping", arguments) for arguments in calls)
    return ModelReply(text=text, calls=made, finish_reason=finish, usage=usage, **more)  # type: ignore[arg-type]


CUT = Verdict(ReplyKind.CUT, "the answer was cut off by the output limit (300 tokens)")
ANSWER, CALLS = Verdict(ReplyKind.ANSWER), Verdict(ReplyKind.CALLS)
BLOCKED = "the model refused or its answer was blocked"


def broken_off(reason: str) -> Verdict:
    return Verdict(ReplyKind.BROKEN_OFF, f"the provider broke the answer off (finish reason {reason!r})")


def nothing(finish: str) -> Verdict:
    return Verdict(ReplyKind.EMPTY, f"the model answered nothing (finish reason {finish!r})")


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (reply("hi"), ANSWER),
        (reply("hi", finish="eos"), ANSWER),
        (reply("hi", finish=""), ANSWER),
        (reply("hi", finish="tool_calls"), ANSWER),
        (reply(""), ANSWER),
        (reply("  \n"), ANSWER),
        (reply("", "{}", finish="tool_calls"), CALLS),
        (reply("I will.", "{}", finish="stop"), CALLS),
        (reply("I will.", "{}", finish="eos"), CALLS),
        (reply("", "{}", finish=""), CALLS),
        (reply("", "{broken", finish="tool_calls"), CALLS),
        (reply("", "{broken", finish="tool_calls", produced=299), CALLS),
        (reply("", "{broken", finish="tool_calls", produced=300), CUT),
        (reply("", "{}", "{broken", finish="tool_calls", produced=301), CUT),
        (reply("", "{}", finish="tool_calls", produced=300), CALLS),
        (reply("", "", finish="tool_calls", produced=300), CALLS),
        (reply("long", finish="stop", produced=300), ANSWER),
        (reply("half a", finish="length"), CUT),
        (reply("half a", finish="max_tokens"), CUT),
        (reply("half a", finish="error"), broken_off("error")),
        (reply("half a", finish="MALFORMED_FUNCTION_CALL"), broken_off("MALFORMED_FUNCTION_CALL")),
        (reply("", "{}", finish="abort"), broken_off("abort")),
        (reply("half a", finish="SAFETY"), Verdict(ReplyKind.REFUSED, BLOCKED)),
        (reply("whole", finish="eos"), Verdict(ReplyKind.ANSWER)),
        (reply("", finish="length"), CUT),
        (reply("", "{}", finish="length"), CUT),
        (reply("", finish="tool_calls"), nothing("tool_calls")),
        (reply(" ", finish="tool_calls"), nothing("tool_calls")),
        (reply("", finish=""), nothing("")),
        (reply("", finish="", is_empty=True), nothing("")),
        (reply("", finish="stop", is_empty=True), nothing("stop")),
        (reply("", finish="content_filter"), Verdict(ReplyKind.REFUSED, BLOCKED)),
        (reply("Here is how", finish="content_filter"), Verdict(ReplyKind.REFUSED, BLOCKED)),
        (reply("", "{}", finish="content_filter"), Verdict(ReplyKind.REFUSED, BLOCKED)),
        (reply("", refusal="I cannot"), Verdict(ReplyKind.REFUSED, f"{BLOCKED}: I cannot")),
        (reply("", "{}", finish="length", refusal="I cannot"), Verdict(ReplyKind.REFUSED, f"{BLOCKED}: I cannot")),
    ],
)
def test_what_a_reply_is(answer: ModelReply, verdict: Verdict):
    assert judge(answer, max_output_tokens=300) == verdict


def test_thinking_counts_as_produced():
    answer = dataclasses.replace(reply("", "{broken", finish="stop"), usage=Usage(50, 100, thinking_tokens=200))
    assert judge(answer, max_output_tokens=300) == CUT


@pytest.mark.parametrize(
    ("text", "answer"),
    [("", True), ("{}", True), ("[1]", True), ("{", False), ("{}{}", False), ("?", False), ("[" * 100_000, False)],
    ids=lambda value: str(value)[:8],
)
def test_what_parses_is_json(text: str, answer: bool):
    assert is_json(text) is answer
