from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from turnkit_django.clients.base import is_transient, retry_after_of
from turnkit_django.clients.chat import RequestForm, form_for, parse_reply, request_body, usage_of
from turnkit_django.core.content import ToolCall, shown
from turnkit_django.core.requests import ChatCall, ChatMessage, ModelReply, ModelRequest, ToolSpec
from turnkit_django.core.usage import Usage
from turnkit_django.errors import ConfigError, ModelError, PermanentModelError, TransientModelError

SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}
CALL: ChatCall = {"id": "c1", "type": "function", "function": {"name": "ping", "arguments": "{}"}}
HELLO: ChatMessage = {"role": "user", "content": "hello"}


def body_of(*messages: ChatMessage, provider: str = "acme", form: RequestForm | None = None, **more: Any) -> Any:
    return request_body(ModelRequest(model="acme/m", messages=messages, **more), provider=provider, form=form)


def reply_of(choice: dict[str, Any] | None = None, **response: Any) -> ModelReply:
    return parse_reply(({"choices": [choice]} if choice is not None else {}) | response, provider="acme")


def message_reply(**message: Any) -> ModelReply:
    return reply_of({"finish_reason": "stop", "message": message})


# Requests


def test_a_request_carries_model_messages_and_the_output_cap() -> None:
    assert body_of(HELLO, max_output_tokens=7) == {"model": "acme/m", "messages": [HELLO], "max_tokens": 7}


def test_instructions_become_the_system_message() -> None:
    assert body_of(HELLO, instructions="Be kind.")["messages"] == [{"role": "system", "content": "Be kind."}, HELLO]


@pytest.mark.parametrize("instructions", ["", "  \n"])
def test_blank_instructions_are_left_out(instructions: str) -> None:
    assert body_of(HELLO, instructions=instructions)["messages"] == [HELLO]


def test_tools_become_functions() -> None:
    tool = ToolSpec("ping", "Pings.", SCHEMA)
    assert body_of(HELLO, tools=(tool,))["tools"] == [
        {"type": "function", "function": {"name": "ping", "description": "Pings.", "parameters": SCHEMA}}
    ]
    assert "tools" not in body_of(HELLO)


@pytest.mark.parametrize("content", [None, "", "  "])
@pytest.mark.parametrize(
    ("form", "expected"),
    [(None, {"content": None}), ("null", {"content": None}), ("absent", {}), ("empty", {"content": ""})],
)
def test_no_text_beside_calls_takes_the_form_the_model_wants(content: str | None, form: Any, expected: Any) -> None:
    message: ChatMessage = {"role": "assistant", "content": content, "tool_calls": [CALL]}
    sent = body_of(message, form=form and RequestForm(empty_content=form))["messages"][0]
    assert sent == {"role": "assistant", "tool_calls": [CALL]} | expected


def test_text_beside_calls_stays() -> None:
    message: ChatMessage = {"role": "assistant", "content": "Looking.", "tool_calls": [CALL]}
    assert body_of(message, form=RequestForm(empty_content="absent"))["messages"] == [message]


def stateful(provider: str, state: object) -> ChatMessage:
    return {
        "role": "assistant",
        "content": "x",
        "tool_calls": [CALL],
        "provider": provider,
        "provider_data": json.dumps(state),
    }


STATE = {"thinking_blocks": [{"signature": "s"}], "tool_calls": [{"provider_specific_fields": {"signature": "t"}}]}


def test_provider_state_goes_back_to_the_provider_that_made_it() -> None:
    message = body_of(stateful("acme", STATE))["messages"][0]
    assert message["thinking_blocks"] == [{"signature": "s"}]
    assert message["tool_calls"] == [{**CALL, "provider_specific_fields": {"signature": "t"}}]
    assert not {"provider", "provider_data"} & set(message)


def test_provider_state_goes_to_no_other_provider() -> None:
    message = body_of(stateful("acme", STATE), provider="other")["messages"][0]
    assert message == {"role": "assistant", "content": "x", "tool_calls": [CALL]}


def test_call_signatures_are_dropped_when_the_calls_are_not_the_same_any_more() -> None:
    state = {"reasoning_items": [1], "tool_calls": [{"a": 1}, {"a": 2}]}
    message = body_of(stateful("acme", state))["messages"][0]
    assert message["tool_calls"] == [CALL]
    assert message["reasoning_items"] == [1]


def test_provider_state_cannot_replace_what_the_message_says() -> None:
    state = {"content": "other", "tool_calls": [{"id": "other", "signature": "t"}]}
    message = body_of(stateful("acme", state))["messages"][0]
    assert (message["content"], message["tool_calls"]) == ("x", [{**CALL, "signature": "t"}])


def test_building_a_request_changes_nothing_in_it() -> None:
    message = stateful("acme", STATE)
    before = json.dumps(message)
    assert body_of(message) == body_of(message)
    assert json.dumps(message) == before


# Forms


def test_the_exact_name_of_a_model_wins_over_the_longest_prefix() -> None:
    forms: dict[str, dict[str, Any]] = {
        "mistral/*": {"call_id_length": 9},
        "mistral/large-*": {"empty_content": "empty"},
        "mistral/large-2": {"empty_content": "absent"},
    }
    assert form_for("mistral/large-2", forms=forms) == RequestForm(empty_content="absent")
    assert form_for("mistral/large-3", forms=forms) == RequestForm(empty_content="empty")
    assert form_for("mistral/small", forms=forms) == RequestForm(call_id_length=9)
    assert form_for("openai/gpt-5", forms=forms) == RequestForm()


def test_a_form_says_what_call_ids_look_like() -> None:
    assert RequestForm(call_id_length=9).call_id_pattern == "[A-Za-z0-9]{9}"
    assert RequestForm().call_id_pattern == "[A-Za-z0-9_-]{1,40}"


@pytest.mark.parametrize("form", [{"empty_content": "none"}, {"call_id_length": 3}, {"call_id_length": "9"}])
def test_a_form_no_request_can_take_is_refused_with_its_name(form: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="acme/m"):
        form_for("acme/m", forms={"acme/m": form})


# Replies


def test_a_plain_answer_is_read() -> None:
    reply = parse_reply(
        {
            "model": "m-2026",
            "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5},
        },
        provider="acme",
        cost=Decimal("0.5"),
    )
    assert reply == ModelReply(
        text="hi",
        finish_reason="stop",
        usage=Usage(input_tokens=10, output_tokens=5),
        cost=Decimal("0.5"),
        provider="acme",
        model="m-2026",
    )


def test_calls_are_read_as_received() -> None:
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "a", "arguments": '{"sku": "AB-1'}},
        {"id": "", "type": "function", "function": {"name": "", "arguments": ""}},
        {"id": None, "function": {"name": None, "arguments": None}},
        {"id": 7, "function": {"name": "b", "arguments": {"n": 1}}},
        {},
        None,
    ]
    assert message_reply(content=None, tool_calls=calls).calls == (
        ToolCall("c1", "a", '{"sku": "AB-1'),
        ToolCall("", "", ""),
        ToolCall("", "", ""),
        ToolCall("7", "b", '{"n": 1}'),
        ToolCall("", "", ""),
        ToolCall("", "", ""),
    )


@pytest.mark.parametrize("calls", [None, [], {}, "x"])
def test_no_calls_are_no_calls_however_they_are_written(calls: object) -> None:
    reply = reply_of({"finish_reason": "tool_calls", "message": {"content": "", "tool_calls": calls}})
    assert (reply.calls, reply.text, reply.finish_reason, reply.is_empty) == ((), "", "tool_calls", False)


@pytest.mark.parametrize("response", [{}, {"choices": []}, {"choices": None}, {"choices": [None]}, {"choices": "x"}])
def test_a_response_without_a_choice_is_empty_and_its_usage_counts(response: dict[str, Any]) -> None:
    reply = parse_reply(response | {"usage": {"prompt_tokens": 12, "completion_tokens": 0}}, provider="acme")
    assert (reply.is_empty, reply.usage) == (True, Usage(input_tokens=12))


@pytest.mark.parametrize("choice", [{}, {"message": None}, {"message": {}}, {"message": {"content": None}}])
def test_a_choice_that_says_nothing_is_not_an_error(choice: dict[str, Any]) -> None:
    assert reply_of(choice) == ModelReply(provider="acme")


def test_a_refusal_is_kept_wherever_it_stands() -> None:
    assert message_reply(content=None, refusal="No.").refusal == "No."
    nested = message_reply(content=None, provider_specific_fields={"refusal": "No."})
    assert (nested.refusal, nested.provider_data) == ("No.", None)


def test_text_in_blocks_is_joined() -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "thinking"}, {"type": "text", "text": "b"}, "junk"]
    assert message_reply(content=blocks).text == "ab"


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_readable_reasoning_is_kept(field: str) -> None:
    assert message_reply(content="x", **{field: "2+3"}).thinking == "2+3"


def test_provider_state_is_kept_as_it_came() -> None:
    state = {
        "thinking_blocks": [{"type": "thinking", "thinking": "ü😀", "signature": "s=="}],
        "reasoning_items": [{"id": "r", "encrypted_content": "e", "summary": []}],
        "provider_specific_fields": {"x": {"y": None}},
    }
    calls = [{**CALL, "provider_specific_fields": {"thought_signature": "t"}}, CALL]
    reply = message_reply(content="x", tool_calls=calls, annotations=[], function_call=None, **state)
    assert json.loads(reply.provider_data or "") == state | {
        "tool_calls": [{"provider_specific_fields": {"thought_signature": "t"}}, {}]
    }


def test_what_was_received_is_what_is_sent_back() -> None:
    received = {
        "role": "assistant",
        "content": "x",
        "thinking_blocks": [{"signature": "s"}],
        "tool_calls": [{**CALL, "extra_content": {"google": {"thought_signature": "q"}}}],
    }
    reply = message_reply(**received)
    replayed: ChatMessage = {
        "role": "assistant",
        "content": reply.text,
        "tool_calls": [CALL],
        "provider": reply.provider,
        "provider_data": reply.provider_data or "",
    }
    assert body_of(replayed)["messages"] == [received]


def test_an_answer_without_provider_state_has_none() -> None:
    assert message_reply(content="x", tool_calls=[CALL], thinking_blocks=None, reasoning="").provider_data is None


def test_state_that_no_request_can_carry_is_dropped() -> None:
    assert message_reply(content="x", thinking_blocks=["\ud800"]).provider_data is None


# Usage


def test_token_counts_are_made_exclusive() -> None:
    usage = {
        "prompt_tokens": 150,
        "completion_tokens": 30,
        "prompt_tokens_details": {"cached_tokens": 100, "cache_creation_tokens": 30},
        "completion_tokens_details": {"reasoning_tokens": 12},
    }
    assert usage_of({"usage": usage}) == Usage(
        input_tokens=20, cached_tokens=100, cache_write_tokens=30, output_tokens=18, thinking_tokens=12
    )


def test_cache_counts_of_anthropic_are_read() -> None:
    usage = {"prompt_tokens": 150, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 30}
    assert usage_of({"usage": usage}) == Usage(input_tokens=20, cached_tokens=100, cache_write_tokens=30)


def test_no_count_is_ever_negative() -> None:
    usage = {
        "prompt_tokens": 5,
        "completion_tokens": -3,
        "prompt_tokens_details": {"cached_tokens": 9},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    assert usage_of({"usage": usage}) == Usage(cached_tokens=9, thinking_tokens=4)


@pytest.mark.parametrize(
    "response",
    [
        {},
        {"usage": None},
        {"usage": {}},
        {"usage": "(absent)"},
        {"usage": {"prompt_tokens": None}},
        {"usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}},
    ],
)
def test_usage_that_was_not_said_is_unknown(response: dict[str, Any]) -> None:
    assert usage_of(response) is None


# Errors inside an answer


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        ({"message": "upstream overloaded", "code": 529}, TransientModelError, 529),
        ({"message": "slow down", "code": "429"}, TransientModelError, 429),
        ({"message": "bad", "status": 400}, PermanentModelError, 400),
        ({"message": "what", "code": "strange"}, TransientModelError, None),
        ({"message": "what", "code": 1302}, TransientModelError, None),
        ({"message": "too long", "code": "context_length_exceeded"}, PermanentModelError, None),
        ({"message": "key", "type": "authentication_error"}, PermanentModelError, None),
        ("out of order", TransientModelError, None),
        ({"detail": "no message"}, TransientModelError, None),
    ],
)
def test_an_error_inside_an_answer_is_classed_by_its_code(error: object, kind: type, status: int | None) -> None:
    with pytest.raises(ModelError) as caught:
        parse_reply({"error": error}, provider="acme")
    assert (type(caught.value), caught.value.status_code) == (kind, status)


def test_the_words_of_an_error_inside_an_answer_are_kept() -> None:
    with pytest.raises(TransientModelError, match="upstream overloaded"):
        parse_reply({"error": {"message": "upstream overloaded", "code": 529}}, provider="acme")


def test_an_error_inside_a_choice_counts_too() -> None:
    error = {"code": 502, "message": "upstream"}
    for choice in ({"error": error, "message": {}}, {"provider_specific_fields": {"error": error}, "message": {}}):
        with pytest.raises(TransientModelError, match="upstream"):
            reply_of(choice)


@pytest.mark.parametrize("error", [None, {}, "", {"message": "", "code": None}])
def test_an_empty_error_object_beside_a_good_answer_is_no_error(error: object) -> None:
    assert reply_of({"message": {"content": "hi"}}, error=error).text == "hi"


# Classes of failures


@pytest.mark.parametrize("status", [None, 200, 408, 409, 425, 429, 500, 502, 503, 529])
def test_these_may_succeed_later(status: int | None) -> None:
    assert is_transient(status)


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
def test_these_would_fail_again(status: int) -> None:
    assert not is_transient(status)


NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("1.5", 1.5),
        (" 0 ", 0.0),
        ("Mon, 30 Nov 2026 12:01:30 GMT", 90.0),
        ("Mon, 30 Nov 2026 12:01:30 -0000", 90.0),
        ("Mon, 30 Nov 2026 11:00:00 GMT", 0.0),
        ("-3", None),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("", None),
        ("Mon, 30 Nov 99999999999999999999 12:00:00 GMT", None),
        ("Mon, 30 Nov 2026 12:00:00 +99999999999999999999", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, seconds: float | None) -> None:
    assert retry_after_of({"Retry-After": value}, now=NOW) == seconds


def test_no_header_asks_for_no_wait() -> None:
    assert retry_after_of({}) is None


@pytest.mark.parametrize(
    "extra", [float("nan"), float("inf"), {"a": [float("nan")]}, {1: 2}, object(), 10**5000, "\ud800"], ids=shown
)
def test_extra_fields_that_cannot_be_kept_do_not_spoil_a_good_answer(extra: Any) -> None:
    message = {"content": "fine", "logprob": extra, "tool_calls": [{"id": "c", "x": extra, "function": {"name": "f"}}]}
    reply = parse_reply({"choices": [{"message": message}]}, provider="acme")
    assert (reply.text, reply.provider_data, [call.name for call in reply.calls]) == ("fine", None, ["f"])


def test_arguments_that_are_no_json_are_still_text() -> None:
    message = {"tool_calls": [{"function": {"name": "f", "arguments": {"at": date(2026, 1, 2)}}}]}
    (call,) = parse_reply({"choices": [{"message": message}]}, provider="acme").calls
    assert call.arguments == '{"at": "2026-01-02"}'


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 10**20, "completion_tokens": 5},
        {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 10**11}},
        {"prompt_tokens": 10, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 2**63}},
    ],
)
def test_counts_that_cannot_be_make_the_usage_unknown(usage: dict[str, Any]) -> None:
    assert usage_of({"usage": usage}) is None


@pytest.mark.parametrize("code", ["²²²", "9" * 5000, "040", 10**20, True])
def test_a_code_that_is_no_status_is_none(code: Any) -> None:
    with pytest.raises(ModelError) as caught:
        parse_reply({"error": {"message": "odd", "code": code}}, provider="acme")
    assert caught.value.status_code is None
