from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.test import override_settings

from turnkit_django.clients import LiteLLMClient
from turnkit_django.clients.litellm import provider_of
from turnkit_django.core.requests import ChatMessage, ModelReply, ModelRequest, ToolSpec
from turnkit_django.core.usage import Usage
from turnkit_django.errors import ModelAccessError, ModelError, PermanentModelError, TransientModelError
from turnkit_django.testing.model_server import ModelServer, model_server
from turnkit_django.testing.script import ScriptRequest, call, raw, text

KEY = "sk-test-THISISSECRET123456"
HELLO: ChatMessage = {"role": "user", "content": "hello"}
ADD = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("OPENAI_API_BASE", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with override_settings(TURNKIT={"MODEL_TIMEOUT": 20}):
        yield


def request(*messages: ChatMessage, model: str = "openai/gpt-5-mini", **more: Any) -> ModelRequest:
    return ModelRequest(model=model, messages=messages or (HELLO,), **more)


def ask(server: ModelServer, *messages: ChatMessage, **more: Any) -> ModelReply:
    return LiteLLMClient(api_base=server.base_url).complete(request(*messages, **more))


def answer(*steps: Any, **more: Any) -> ModelReply:
    with model_server(list(steps)) as server:
        return ask(server, **more)


def failure(*steps: Any, **more: Any) -> ModelError:
    with model_server(list(steps)) as server, pytest.raises(ModelError) as caught:
        ask(server, **more)
    assert len(server.requests) == 1, "litellm must not retry"
    return caught.value


# Answers


def test_an_answer_comes_with_its_usage_its_cost_and_its_provider() -> None:
    assert answer(text("hi")) == ModelReply(
        text="hi",
        finish_reason="stop",
        usage=Usage(input_tokens=100, output_tokens=20),
        cost=Decimal("0.000065"),
        provider="openai",
        model="gpt-5-mini",
    )


def test_a_tool_call_goes_there_and_its_result_back() -> None:
    with model_server([call("add", {"a": 2}, id="c1"), text("5")]) as server:
        first = ask(server, tools=(ADD,))
        assert [(c.id, c.name, c.arguments) for c in first.calls] == [("c1", "add", '{"a": 2}')]
        assert first.finish_reason == "tool_calls"
        asked: ChatMessage = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}],
        }
        result: ChatMessage = {"role": "tool", "content": "5", "tool_call_id": "c1"}
        assert ask(server, HELLO, asked, result, tools=(ADD,), instructions="Add.").text == "5"
    assert server.violations == []
    assert [message["role"] for message in server.requests[1]["messages"]] == ["system", "user", "assistant", "tool"]
    assert server.requests[0]["tools"][0]["function"]["name"] == "add"


def test_the_output_cap_is_always_sent() -> None:
    with model_server([text("hi")]) as server:
        ask(server, max_output_tokens=77, model="openai/some-server")
    assert server.requests[0]["max_tokens"] == 77


def test_signed_reasoning_survives_the_round_trip() -> None:
    signed = {
        "finish_reason": "tool_calls",
        "message": {
            "content": None,
            "thinking_blocks": [{"type": "thinking", "thinking": "t", "signature": "s=="}],
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "add", "arguments": "{}"},
                    "extra_content": {"google": {"thought_signature": "q"}},
                }
            ],
        },
    }
    with model_server([raw(signed), text("done")]) as server:
        first = ask(server, tools=(ADD,))
        replayed: ChatMessage = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "x", "type": "function", "function": {"name": "add", "arguments": "{}"}}],
            "provider": first.provider,
            "provider_data": first.provider_data or "",
        }
        ask(server, HELLO, replayed, {"role": "tool", "content": "1", "tool_call_id": "x"}, tools=(ADD,))
    assert server.violations == []
    assert server.requests[1]["messages"][1]["thinking_blocks"] == signed["message"]["thinking_blocks"]  # type: ignore[index]


def test_the_strict_rules_hold_on_the_wire() -> None:
    with model_server([text("never")]) as server, pytest.raises(PermanentModelError, match="V6"):
        ask(server, HELLO, {"role": "assistant", "content": "x"})
    assert server.overrun == 0


@pytest.mark.parametrize(
    ("thinking", "sent"),
    [
        ({"effort": "low"}, {"reasoning_effort": "low"}),
        ({"budget": 1024}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        ({"effort": "high", "budget": 1024}, {"reasoning_effort": "high"}),
        (None, {}),
    ],
)
def test_thinking_is_asked_for_in_the_words_of_the_provider(thinking: Any, sent: dict[str, Any]) -> None:
    with model_server([text("hi")]) as server:
        ask(server, thinking=thinking, model="openai/some-server")
    keys = {"reasoning_effort", "thinking"}
    assert {key: value for key, value in server.requests[0].items() if key in keys} == sent


def test_many_threads_may_share_a_client() -> None:
    from concurrent.futures import ThreadPoolExecutor

    def echo(asked: ScriptRequest) -> Any:
        return text(asked.last_text)

    with model_server(echo) as server, ThreadPoolExecutor(16) as pool:
        client = LiteLLMClient(api_base=server.base_url)
        replies = pool.map(lambda n: client.complete(request({"role": "user", "content": f"{n}"})).text, range(48))
        assert list(replies) == [str(n) for n in range(48)]


# Usage and cost


def test_tokens_arrive_in_exclusive_buckets() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 30},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    reply = answer(raw({"message": {"content": "hi"}, "usage": usage}))
    assert reply.usage == Usage(input_tokens=70, cached_tokens=30, output_tokens=15, thinking_tokens=5)
    # 70 x 0.25 + 30 x 0.025 + 20 x 2 dollars per million
    assert reply.cost == Decimal("0.00005825")


def test_usage_that_is_missing_is_unknown_and_so_is_the_cost() -> None:
    reply = answer(raw({"message": {"content": "hi"}, "usage": "(absent)"}))
    assert (reply.text, reply.usage, reply.cost) == ("hi", None, None)


@pytest.mark.parametrize("model", ["openai/unknown-9", "openai/gpt-5-mini-acme"])
def test_a_model_without_a_price_costs_unknown(model: str) -> None:
    assert answer(text("hi"), model=model).cost is None


def test_configured_rates_come_first() -> None:
    with override_settings(TURNKIT={"COST_RATES": {"openai/gpt-5-mini": {"input": 1, "output": "2.5"}}}):
        assert answer(text("hi")).cost == Decimal("0.00015")


def test_rates_that_do_not_suffice_make_the_cost_unknown_and_fail_nothing() -> None:
    with override_settings(TURNKIT={"COST_RATES": {"openai/gpt-5-mini": {"input": 1}}}):
        reply = answer(text("hi"))
    assert (reply.text, reply.cost) == ("hi", None)


# Failures


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refused_request_is_permanent(status: int) -> None:
    error = failure({"error": {"status": status, "message": "no such luck"}})
    assert (type(error), error.status_code) == (PermanentModelError, status)
    assert "no such luck" in str(error)
    assert str(status) in str(error)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_a_troubled_provider_is_transient(status: int) -> None:
    error = failure({"error": {"status": status, "message": "later"}})
    assert (type(error), error.status_code) == (TransientModelError, status)
    assert "later" in str(error)


def test_the_wait_a_provider_asks_for_is_read() -> None:
    error = failure({"error": {"status": 429, "retry_after": 2}})
    assert isinstance(error, TransientModelError)
    assert error.retry_after == 2.0
    other = failure({"error": {"status": 429}})
    assert isinstance(other, TransientModelError)
    assert other.retry_after is None


def test_the_wait_may_be_a_date() -> None:
    error = failure({"error": {"status": 503, "retry_after": "Fri, 01 Jan 2100 00:00:00 GMT"}})
    assert isinstance(error, TransientModelError)
    assert error.retry_after is not None
    assert error.retry_after > 1_000_000


def test_a_refused_connection_is_transient() -> None:
    with model_server([]) as server:
        base = server.base_url
    with pytest.raises(TransientModelError, match=r"[Cc]onnection"):
        LiteLLMClient(api_base=base).complete(request())


def test_a_provider_that_keeps_silent_is_transient() -> None:
    from threading import Event

    released = Event()

    def stall(_: ScriptRequest) -> Any:
        released.wait(20)
        return text("late")

    with override_settings(TURNKIT={"MODEL_TIMEOUT": 1}), model_server(stall) as server:
        with pytest.raises(TransientModelError):
            ask(server)
        released.set()


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        ({"message": "upstream overloaded", "code": 529}, TransientModelError, 529),
        ({"message": "upstream overloaded", "code": "odd"}, TransientModelError, None),
        ({"message": "upstream overloaded"}, TransientModelError, None),
        ({"message": "upstream overloaded", "code": 400}, PermanentModelError, 400),
    ],
)
def test_an_error_inside_a_200_keeps_its_words_and_is_classed_by_its_code(
    error: dict[str, Any], kind: type, status: int | None
) -> None:
    caught = failure(raw({"error": error}))
    assert (type(caught), caught.status_code) == (kind, status)
    assert "upstream overloaded" in str(caught)


@pytest.mark.parametrize("choices", [[], None])
def test_an_answer_without_a_choice_is_empty_and_its_usage_counts(choices: Any) -> None:
    usage = {"prompt_tokens": 12, "completion_tokens": 0, "total_tokens": 12}
    reply = answer(raw({"choices": choices, "usage": usage}))
    assert (reply.is_empty, reply.usage, reply.cost) == (True, Usage(input_tokens=12), Decimal("0.000003"))


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_content_in_blocks_is_read_although_litellm_cannot() -> None:
    assert answer(raw({"message": {"content": [{"type": "text", "text": "a"}]}})).text == "a"


def test_blocked_and_refused_answers_are_told_apart() -> None:
    assert answer(raw({"finish_reason": "content_filter", "message": {"content": None}})).finish_reason == (
        "content_filter"
    )
    assert answer(raw({"message": {"content": None, "refusal": "I cannot."}})).refusal == "I cannot."


# Secrets


def test_no_secret_gets_into_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_PASSWORD", "hunter2-hunter2")
    message = (
        f"Incorrect API key provided: {KEY}. url: https://host/v1?key=AIzaTESTSECRET0000000000000000000000000 "
        "Authorization: Bearer tok_SECRETSECRETSECRET password hunter2-hunter2"
    )
    error = failure({"error": {"status": 401, "message": message}})
    assert "Incorrect API key provided" in str(error)
    for secret in ("THISISSECRET", "TESTSECRET", "SECRETSECRET", "hunter2"):
        assert secret not in str(error)
    assert error.__context__ is None
    assert error.__cause__ is None


def test_a_key_given_to_the_client_does_not_get_into_an_error_either() -> None:
    secret = "plain-words-as-a-key"
    with model_server([{"error": {"status": 401, "message": f"bad key {secret}"}}]) as server:
        client = LiteLLMClient(api_base=server.base_url, api_key=secret)
        with pytest.raises(PermanentModelError) as caught:
            client.complete(request())
    assert secret not in str(caught.value)


def test_a_long_error_is_cut() -> None:
    assert len(str(failure({"error": {"status": 400, "message": "x" * 10_000}}))) == 2000


# Access


@pytest.mark.parametrize(
    ("model", "variable"),
    [("openai/gpt-5-mini", "OPENAI_API_KEY"), ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY")],
)
def test_a_missing_key_is_named_before_anything_is_sent(
    model: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ModelAccessError, match=variable):
        LiteLLMClient().validate(model)
    with pytest.raises(ModelAccessError, match=variable):
        LiteLLMClient().complete(request(model=model))


def test_an_empty_key_is_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", " ")
    with pytest.raises(ModelAccessError, match="OPENAI_API_KEY"):
        LiteLLMClient().validate("openai/gpt-5-mini")


def test_an_empty_model_name_is_refused() -> None:
    with pytest.raises(ModelAccessError, match="openai/gpt-5-mini"):
        LiteLLMClient().validate("")


def test_a_key_in_the_environment_or_given_suffices(monkeypatch: pytest.MonkeyPatch) -> None:
    LiteLLMClient().validate("openai/gpt-5-mini")
    monkeypatch.delenv("OPENAI_API_KEY")
    LiteLLMClient(api_key="something").validate("openai/gpt-5-mini")


@pytest.mark.parametrize("variable", ["OPENAI_API_BASE", "OPENAI_BASE_URL"])
def test_a_server_of_ones_own_needs_no_key(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with model_server([text("hi")]) as server:
        monkeypatch.setenv(variable, server.base_url)
        client = LiteLLMClient()
        client.validate("openai/gpt-5-mini")
        assert client.complete(request()).text == "hi"
        with pytest.raises(ModelAccessError, match="ANTHROPIC_API_KEY"):
            client.validate("anthropic/claude-sonnet-4-5")


@pytest.mark.parametrize(
    ("model", "provider"),
    [("openai/gpt-5-mini", "openai"), ("claude-sonnet-4-5", "anthropic"), ("acme/unknown-9", "acme")],
)
def test_the_provider_of_a_model_is_known_or_read_from_its_name(model: str, provider: str) -> None:
    assert provider_of(model) == provider


def test_an_unknown_provider_is_a_permanent_failure() -> None:
    with pytest.raises(PermanentModelError, match="acme"):
        LiteLLMClient().complete(request(model="acme/unknown-9"))


def test_naming_the_client_does_not_import_litellm_and_using_it_stays_offline() -> None:
    code = """
import os, sys
from turnkit_django.clients import LiteLLMClient, ModelClient
assert "litellm" not in sys.modules
from turnkit_django.clients.litellm import provider_of
provider_of("gpt-5-mini")
assert "litellm" in sys.modules
print({name: os.environ[name] for name in os.environ if name.startswith("LITELLM_")})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    environment = json.loads(done.stdout.replace("'", '"'))
    assert environment["LITELLM_OFFLINE_MODE"] == "true"
    assert environment["LITELLM_MODE"] == "PRODUCTION"


def test_the_package_has_no_other_names() -> None:
    import turnkit_django.clients

    with pytest.raises(AttributeError, match="OtherClient"):
        turnkit_django.clients.OtherClient  # noqa: B018
