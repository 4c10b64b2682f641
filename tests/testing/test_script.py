from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from django.test import override_settings

from turnkit_django.clients import LiteLLMClient
from turnkit_django.clients.chat import RequestForm
from turnkit_django.core.content import ToolCall
from turnkit_django.core.requests import ChatMessage, ModelReply, ModelRequest, ToolSpec
from turnkit_django.core.usage import Usage
from turnkit_django.errors import ConfigError, PermanentModelError, TransientModelError
from turnkit_django.testing.clients import ScriptedModel
from turnkit_django.testing.model_server import model_server
from turnkit_django.testing.script import ScriptPlayer, ScriptRequest, call, raw, text
from turnkit_django.testing.strict import StrictRequestError

PING = ToolSpec("ping", "Pings.", {"type": "object", "properties": {}})


@dataclass(frozen=True)
class Row:
    pk: int


def ask(model: ScriptedModel, words: str = "hello", *, conversation: str = "", **more: Any) -> ModelReply:
    metadata = {"conversation_id": conversation} if conversation else {}
    request = ModelRequest(
        model="acme/m", messages=({"role": "user", "content": words},), tools=(PING,), metadata=metadata, **more
    )
    return model.complete(request)


# Steps


def test_steps_are_answered_in_order() -> None:
    model = ScriptedModel([text("one"), text("two")])
    assert [ask(model).text, ask(model).text] == ["one", "two"]
    assert len(model.requests) == 2


def test_a_script_that_ended_says_done_and_counts() -> None:
    model = ScriptedModel([text("one")])
    assert [ask(model).text for _ in range(3)] == ["one", "done", "done"]
    assert model.overrun == 2


def test_a_call_has_an_id_of_its_own_unless_one_is_given() -> None:
    model = ScriptedModel([call("ping", {"n": 1}), call("ping"), call("ping", id="given"), call("ping", id="")])
    calls = [ask(model).calls[0] for _ in range(4)]
    assert calls[0] == ToolCall(calls[0].id, "ping", '{"n": 1}')
    assert calls[1].arguments == "{}"
    assert len({c.id for c in calls}) == 4
    assert [c.id for c in calls[2:]] == ["given", ""]


def test_arguments_that_are_text_are_sent_as_they_are() -> None:
    assert ask(ScriptedModel([call("ping", '{"sku": "AB-1')])).calls[0].arguments == '{"sku": "AB-1'


def test_a_list_is_one_answer_with_several_calls() -> None:
    reply = ask(ScriptedModel([[text("Looking."), call("ping", {"n": 1}), call("ping", {"n": 2})]]))
    assert (reply.text, reply.finish_reason) == ("Looking.", "tool_calls")
    assert [c.arguments for c in reply.calls] == ['{"n": 1}', '{"n": 2}']
    assert len({c.id for c in reply.calls}) == 2


def test_the_forms_of_a_json_file_are_steps_too() -> None:
    model = ScriptedModel([{"text": "a"}, {"call": ["ping", {"n": 1}]}, {"raw": {"message": {"content": "b"}}}])
    assert ask(model).text == "a"
    assert ask(model).calls[0].arguments == '{"n": 1}'
    assert ask(model).text == "b"


def test_a_raw_choice_is_used_as_it_is() -> None:
    choice = {"finish_reason": "content_filter", "message": {"content": "Here is how"}}
    reply = ask(ScriptedModel([raw(choice)]))
    assert (reply.finish_reason, reply.text, reply.usage) == ("content_filter", "Here is how", Usage(100, 20))


def test_a_raw_choice_may_bring_its_own_usage_or_none() -> None:
    message = {"message": {"content": "x"}}
    model = ScriptedModel(
        [
            raw({**message, "usage": {"prompt_tokens": 50, "completion_tokens": 300}}),
            raw({**message, "usage": "(absent)"}),
        ]
    )
    assert ask(model).usage == Usage(50, 300)
    assert ask(model).usage is None


def test_a_raw_response_is_used_as_it_is() -> None:
    empty = raw({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 0}})
    reply = ask(ScriptedModel([empty]))
    assert (reply.is_empty, reply.usage) == (True, Usage(12))
    assert ask(ScriptedModel([raw({"choices": [{"message": {"content": "x"}}]})])).usage is None


@pytest.mark.parametrize("choice", [None, {"message": None}, {"message": {"tool_calls": [None]}}])
def test_even_junk_is_handed_out_as_it_is(choice: Any) -> None:
    reply = ask(ScriptedModel([raw({"choices": [choice]})]))
    assert (reply.text, reply.is_empty) == ("", choice is None)


@pytest.mark.parametrize("wrap", [raw, dict])
def test_an_error_without_a_status_is_one_inside_an_answer(wrap: Any) -> None:
    model = ScriptedModel([wrap({"error": {"message": "upstream overloaded", "code": 529}})])
    with pytest.raises(TransientModelError, match="upstream overloaded"):
        ask(model)
    assert model.usages == []


def test_an_error_with_a_status_is_an_http_error() -> None:
    model = ScriptedModel([{"error": {"status": 429, "retry_after": 2}}, {"error": {"status": 404, "message": "gone"}}])
    with pytest.raises(TransientModelError) as caught:
        ask(model)
    assert (caught.value.status_code, caught.value.retry_after) == (429, 2.0)
    with pytest.raises(PermanentModelError, match="gone"):
        ask(model)


def test_secrets_in_a_scripted_error_are_redacted_as_in_a_real_one() -> None:
    with pytest.raises(PermanentModelError) as caught:
        ask(ScriptedModel([{"error": {"status": 401, "message": "bad key sk-test-THISISSECRET123456"}}]))
    assert "THISISSECRET" not in str(caught.value)


@pytest.mark.parametrize("step", [TimeoutError("slow"), TimeoutError, KeyboardInterrupt()])
def test_an_exception_is_raised(step: Any) -> None:
    with pytest.raises((TimeoutError, KeyboardInterrupt)):
        ask(ScriptedModel([step]))


def test_a_callable_step_sees_the_request_and_returns_a_step() -> None:
    def echo(request: ScriptRequest) -> Any:
        return lambda _: text(f"{request.model}: {request.last_text} {request.tool_names} {request.instructions}")

    assert ask(ScriptedModel([echo]), instructions="Be kind.").text == "acme/m: hello ['ping'] Be kind."


@pytest.mark.parametrize("step", [5, "words", {}, [], {"words": "x"}, [text("a"), 5]])
def test_a_step_that_is_none_says_what_was_expected(step: Any) -> None:
    with pytest.raises(ConfigError, match="expected"):
        ask(ScriptedModel([step]))


# Scripts


def test_a_script_may_be_one_callable() -> None:
    model = ScriptedModel(lambda request: text("yes") if request.last_text == "really?" else None)
    assert ask(model, "really?").text == "yes"
    assert ask(model, "other").text == "done"
    assert model.overrun == 1


def test_a_script_may_be_keyed_by_conversation() -> None:
    scripts = {"conv_1": [text("a1"), text("a2")], "the first words": lambda _: text("c")}
    model = ScriptedModel({**scripts, "conv_2": [text("b1")]})
    assert ask(model, conversation="conv_1").text == "a1"
    assert ask(model, conversation="conv_2").text == "b1"
    assert ask(model, conversation="conv_1").text == "a2"
    assert ask(model, "the first words", conversation="conv_9").text == "c"
    assert ask(model, conversation="conv_9").text == "done"
    assert ask(model, conversation="conv_2").text == "done"
    assert model.overrun == 2


def test_a_key_may_be_the_conversation_itself() -> None:
    conversation = Row(pk=7)
    model = ScriptedModel({conversation: iter([text("a"), text("b")])})
    assert [ask(model, conversation="7").text for _ in range(3)] == ["a", "b", "done"]


def test_a_list_can_be_continued() -> None:
    model = ScriptedModel()
    model.extend([text("later")])
    assert ask(model).text == "later"
    with pytest.raises(ConfigError, match="list"):
        ScriptedModel({}).extend([text("x")])


def test_one_callable_works_behind_the_server_as_well() -> None:
    def script(request: ScriptRequest) -> Any:
        assert request["messages"][-1]["role"] == "user"
        assert request.get("nothing") is None
        return text(f"{request.messages[0]['content']}, {request.instructions}, {request.tool_names}")

    with model_server(script) as server:
        request = ModelRequest(
            model="openai/m",
            messages=({"role": "user", "content": "hello"},),
            instructions="Be kind.",
            tools=(PING,),
        )
        real = LiteLLMClient(api_base=server.base_url, api_key="x").complete(request)
    assert ScriptedModel(script).complete(request).text == real.text == "hello, Be kind., ['ping']"


def test_threads_share_a_script_without_losing_or_repeating_a_step() -> None:
    model = ScriptedModel([text(str(number)) for number in range(200)])
    with ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(lambda _: ask(model).text, range(200)))
    assert sorted(texts, key=int) == [str(number) for number in range(200)]
    assert model.usage == Usage(200 * 100, 200 * 20)


# Ledger


def test_the_ledger_holds_what_was_handed_out() -> None:
    nothing = raw({"message": {"content": "x"}, "usage": None})
    model = ScriptedModel([text("a"), nothing, {"error": {"status": 500}}, text("b")])
    for _ in range(2):
        ask(model)
    with pytest.raises(TransientModelError):
        ask(model)
    ask(model)
    assert model.usages == [Usage(100, 20), None, Usage(100, 20)]
    assert model.usage == Usage(200, 40)


def test_each_answer_has_the_cost_it_was_given() -> None:
    assert ask(ScriptedModel([text("a")])).cost == Decimal("0.001")
    assert ask(ScriptedModel([text("a")], cost=Decimal(2))).cost == Decimal(2)
    assert ask(ScriptedModel([text("a")], cost=None)).cost is None
    assert ask(ScriptedModel([raw({"message": {"content": "x"}, "usage": None})])).cost is None


# Strict rules

BROKEN: ChatMessage = {"role": "assistant", "content": "I am last"}


def broken_request(model: str = "acme/m") -> ModelRequest:
    return ModelRequest(model=model, messages=({"role": "user", "content": "a"}, BROKEN))


def test_a_request_that_breaks_a_rule_is_refused_and_takes_no_step() -> None:
    model = ScriptedModel([text("kept")])
    with pytest.raises(StrictRequestError, match="V6"):
        model.complete(broken_request())
    assert [violation[:2] for violation in model.violations] == ["V6"]
    assert ask(model).text == "kept"


def test_the_rules_can_be_switched_off() -> None:
    model = ScriptedModel([text("fine")], strict=False)
    assert model.complete(broken_request()).text == "fine"


def called(call_id: str) -> ModelRequest:
    calling: ChatMessage = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": {"name": "ping", "arguments": "{}"}}],
    }
    result: ChatMessage = {"role": "tool", "tool_call_id": call_id, "content": "x"}
    return ModelRequest(model="acme/m", messages=({"role": "user", "content": "a"}, calling, result), tools=(PING,))


def test_the_form_of_the_model_is_checked() -> None:
    with pytest.raises(StrictRequestError, match="V9"):
        ScriptedModel(form=RequestForm(call_id_length=9)).complete(called("c1"))
    with override_settings(TURNKIT={"REQUEST_FORMS": {"acme/*": {"call_id_length": 9}}}):
        with pytest.raises(StrictRequestError, match="V9"):
            ScriptedModel().complete(called("c1"))
        assert ScriptedModel().complete(called("abcdefghi")).text == "done"


@pytest.mark.parametrize("form", ["null", "absent", "empty"])
def test_requests_take_the_form_that_is_checked(form: Any) -> None:
    assert ScriptedModel(form=RequestForm(empty_content=form)).complete(called("c1")).text == "done"


def test_provider_state_must_come_back() -> None:
    signed = raw({"message": {"content": "x", "thinking_blocks": [{"signature": "s"}]}})
    model = ScriptedModel([signed, text("fine")])
    reply = ask(model)
    answered: ChatMessage = {"role": "assistant", "content": "x"}
    whole: ChatMessage = {**answered, "provider": reply.provider, "provider_data": reply.provider_data or ""}

    def again(message: ChatMessage, name: str) -> ModelReply:
        hello: ChatMessage = {"role": "user", "content": "a"}
        return model.complete(ModelRequest(model=name, messages=(hello, message, hello)))

    with pytest.raises(StrictRequestError, match="V12"):
        again(answered, "acme/m")
    assert again(whole, "acme/m").text == "fine"
    assert again(whole, "other/m").text == "done"


def test_any_model_is_accessible() -> None:
    ScriptedModel().validate("acme/m")


def test_a_list_with_a_step_that_is_none_is_refused_at_once_with_its_number() -> None:
    with pytest.raises(ConfigError, match=r"step 2 of the script: expected .*; got \{'txt': 'x'\}"):
        ScriptPlayer([text("fine"), {"txt": "x"}])
    player = ScriptPlayer([text("fine")])
    with pytest.raises(ConfigError, match="step 3 of the script: expected"):
        player.extend([lambda request: text("fine"), 7])
    player.extend([text("more")])
    assert player.overrun == 0
