"""An answer that a provider did not finish is never published, whatever the provider or litellm calls its end."""

import pytest

from tests.testapp.agents import helper
from turnkit_django.clients import LiteLLMClient
from turnkit_django.core.requests import ModelRequest
from turnkit_django.engine import runner
from turnkit_django.engine.decide import ReplyKind, judge
from turnkit_django.testing import Crash, assert_clean, crash_at, drain, model_server, raw, text


@pytest.mark.parametrize("reason", ["error", "insufficient_system_resource", "model_length", "abort"])
def test_litellm_does_not_hide_that_an_answer_was_broken_off(reason):
    choice = {"finish_reason": reason, "message": {"role": "assistant", "content": "Your refund of"}}
    with model_server([raw(choice)]) as server:
        request = ModelRequest(model="openai/gpt-5-mini", messages=({"role": "user", "content": "Hi"},))
        reply = LiteLLMClient(api_base=server.base_url).complete(request)
    assert judge(reply, max_output_tokens=8192).kind in {ReplyKind.CUT, ReplyKind.BROKEN_OFF}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("point", ["fail.written", "fail.committed"])
def test_a_refusal_is_stored_with_the_end_it_brings(turnkit_model, point):
    choice = {"finish_reason": "content_filter", "message": {"role": "assistant", "content": "part"}}
    usage = {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    refused = raw({"choices": [choice], "usage": usage})
    model = turnkit_model([refused, refused])
    turn = helper.conversation().submit("Hi")
    with crash_at(point), pytest.raises(Crash):
        runner.run_next()
    drain()
    turn.refresh_from_db()
    assert (turn.status, turn.error["type"], turn.output_text) == ("failed", "Refused", "")
    assert turn.messages.get(role="assistant").metadata["finish_reason"] == "content_filter"
    assert turn.usage.unknown_attempts == (1 if point == "fail.written" else 0)
    assert_clean(model=model)


@pytest.mark.django_db(transaction=True)
def test_every_call_of_a_blocked_reply_has_a_row_and_a_result(turnkit_model):
    calls = [{"id": "c1", "type": "function", "function": {"name": "unsafe", "arguments": '{"n": 1}'}}]
    choice = {"finish_reason": "content_filter", "message": {"role": "assistant", "content": None, "tool_calls": calls}}
    model = turnkit_model([raw(choice), text("fine")])
    conversation = helper.conversation()
    turn = conversation.submit("Hi")
    drain()
    execution = turn.tool_executions.get()
    turn.refresh_from_db()
    assert (turn.status, execution.status, execution.started_at) == ("failed", "cancelled", None)
    assert conversation.ask("Again").output_text == "fine"
    assert_clean(model=model)
