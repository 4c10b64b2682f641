from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from turnkit_django.clients.chat import RequestForm
from turnkit_django.core.usage import Usage
from turnkit_django.errors import ConfigError, PermanentModelError, TransientModelError
from turnkit_django.testing.model_server import ModelServer, model_server
from turnkit_django.testing.script import ScriptRequest, call, raw, text

HELLO = [{"role": "user", "content": "hello"}]


def post(base_url: str, messages: Any = HELLO, **more: Any) -> httpx.Response:
    return httpx.post(f"{base_url}/chat/completions", json={"model": "m", "messages": messages, **more}, timeout=10)


def words(server: ModelServer, messages: Any = HELLO) -> Any:
    return post(server.base_url, messages).json()["choices"][0]["message"]["content"]


def test_an_answer_has_the_form_of_a_chat_completion() -> None:
    with model_server([text("hi")]) as server:
        assert server.base_url.startswith("http://127.0.0.1:")
        assert server.base_url.endswith("/v1")
        answer = post(server.base_url).json()
    assert answer == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }


def test_requests_and_usage_are_kept() -> None:
    with model_server([text("a"), {"error": {"status": 500}}, raw({"error": {"code": 529}})]) as server:
        for _ in range(4):
            post(server.base_url, temperature=0)
    assert [request["temperature"] for request in server.requests] == [0, 0, 0, 0]
    assert server.usages == [Usage(100, 20), Usage(100, 20)]
    assert (server.usage, server.overrun) == (Usage(200, 40), 1)


@pytest.mark.parametrize(
    ("step", "status", "retry_after"),
    [
        ({"error": {"status": 429, "retry_after": 2}}, 429, "2"),
        ({"error": {"status": 404}}, 404, None),
        (TransientModelError("later", status_code=503, retry_after=1.5), 503, "1.5"),
        (TransientModelError("later"), 503, None),
        (PermanentModelError("never"), 400, None),
        (RuntimeError("a bug in the script"), 500, None),
        (lambda _: 1 / 0, 500, None),
    ],
)
def test_failures_are_http_errors(step: Any, status: int, retry_after: str | None) -> None:
    with model_server([step]) as server:
        answer = post(server.base_url)
    assert (answer.status_code, answer.headers.get("retry-after")) == (status, retry_after)
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_a_request_that_breaks_a_rule_is_answered_with_400_and_its_name() -> None:
    with model_server([text("kept")]) as server:
        answer = post(server.base_url, [*HELLO, {"role": "assistant", "content": "last"}])
        assert answer.status_code == 400
        assert "V6 messages[1]" in answer.json()["error"]["message"]
        assert words(server) == "kept"
    assert [violation[:2] for violation in server.violations] == ["V6"]


def test_the_rules_can_be_switched_off_or_made_those_of_a_model() -> None:
    last = [*HELLO, {"role": "assistant", "content": "last"}]
    with model_server([text("fine")], strict=False) as server:
        assert words(server, last) == "fine"
    ping = {"id": "c1", "type": "function", "function": {"name": "ping", "arguments": "{}"}}
    called = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [ping]},
        {"role": "tool", "tool_call_id": "c1", "content": "x"},
    ]
    with model_server([], form=RequestForm(call_id_length=9)) as server:
        assert post(server.base_url, called).status_code == 400
    assert {violation.split()[0] for violation in server.violations} == {"V9", "V13"}


def test_a_script_may_be_keyed_by_the_first_words() -> None:
    with model_server({"hello": [text("a"), text("b")], "bye": lambda _: text("c")}) as server:
        assert [words(server), words(server)] == ["a", "b"]
        assert words(server, [{"role": "user", "content": "bye"}]) == "c"
        assert words(server, [{"role": "user", "content": "who?"}]) == "done"


def test_even_junk_is_handed_out_as_it_is() -> None:
    with model_server([raw({"choices": [None]}), raw({"choices": None})]) as server:
        assert post(server.base_url).json()["choices"] == [None]
        assert post(server.base_url).json()["choices"] is None
    assert server.usages == [None, None]


def events(answer: httpx.Response) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_an_answer_can_be_streamed() -> None:
    with model_server([text("a longer answer"), [text("Looking."), call("ping", {"n": 1}, id="c1")]]) as server:
        first = post(server.base_url, stream=True, stream_options={"include_usage": True})
        second = post(server.base_url, stream=True)
    assert first.headers["content-type"] == "text/event-stream"
    *chunks, last = events(first)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "a longer answer"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert (last["choices"], last["usage"]["prompt_tokens"]) == ([], 100)
    deltas = [chunk["choices"][0]["delta"] for chunk in events(second)]
    calls = [part for delta in deltas for part in delta.get("tool_calls", [])]
    assert (calls[0]["id"], calls[0]["function"]["name"]) == ("c1", "ping")
    assert "".join(part["function"]["arguments"] for part in calls) == '{"n": 1}'


def test_errors_are_the_same_in_a_stream() -> None:
    with model_server([{"error": {"status": 429}}, raw({"error": {"code": 529}})]) as server:
        assert post(server.base_url, stream=True).status_code == 429
        assert events(post(server.base_url, stream=True)) == [{"error": {"code": 529}}]


def test_the_models_can_be_listed() -> None:
    with model_server([]) as server:
        assert httpx.get(f"{server.base_url}/models").json()["data"][0]["id"] == "scripted"
        assert httpx.get(f"{server.base_url}/other").status_code == 404
        assert httpx.post(f"{server.base_url}/other", json={}).status_code == 404


@pytest.mark.parametrize("content", [b"{", b"[]", b""])
def test_a_body_that_is_no_object_is_refused(content: bytes) -> None:
    with model_server([]) as server:
        assert httpx.post(f"{server.base_url}/chat/completions", content=content).status_code == 400


def test_nothing_listens_after_the_block() -> None:
    with model_server([]) as server, httpx.Client() as client:
        assert client.get(f"{server.base_url}/models").status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.base_url}/models")


# python -m


@contextmanager
def served(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-W", "error", "-m", "turnkit_django.testing.model_server", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={}) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield process, line.strip().removeprefix("listening on ")
        finally:
            process.kill()


STEPS = [text("from a list")]


def answer_to(request: ScriptRequest) -> Any:
    return text(f"you said {request.last_text}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_a_json_file_until_it_is_told_to_stop(number: signal.Signals, tmp_path: Path) -> None:
    steps = [{"text": "hi"}, {"call": ["refund", {"n": 1}]}, {"error": {"status": 429, "retry_after": 2}}]
    path = tmp_path / "script with spaces.json"
    path.write_text(json.dumps({"steps": steps}))
    with served(str(path), "--port", "0") as (process, base_url):
        assert post(base_url).json()["choices"][0]["message"]["content"] == "hi"
        (asked,) = post(base_url).json()["choices"][0]["message"]["tool_calls"]
        assert asked["function"] == {"name": "refund", "arguments": '{"n": 1}'}
        assert post(base_url).headers["retry-after"] == "2"
        assert post(base_url).json()["choices"][0]["message"]["content"] == "done"
        process.send_signal(number)
        output, errors = process.communicate(timeout=20)
    assert (process.returncode, output, errors) == (0, "", "")


@pytest.mark.parametrize(("name", "said"), [("STEPS", "from a list"), ("answer_to", "you said hello")])
def test_the_command_serves_a_name_of_a_module(name: str, said: str) -> None:
    with served(f"{__name__}:{name}") as (_, base_url):
        assert post(base_url).json()["choices"][0]["message"]["content"] == said


@pytest.mark.parametrize(
    "source",
    [
        "missing.json",
        "no_such_module:script",
        "json:no_such_name",
        "json:__name__",
        "json",
        "broken.json",
        "steps.json",
    ],
)
def test_a_script_that_cannot_be_read_is_said_in_one_line(source: str, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "steps.json").write_text('{"step": []}')
    source = str(tmp_path / source) if source.endswith(".json") else source
    command = [sys.executable, "-m", "turnkit_django.testing.model_server", source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "package.module:name" in done.stderr
    assert source in done.stderr or "str" in done.stderr


def test_a_taken_port_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"steps": []}')
    with model_server([]) as server:
        command = [sys.executable, "-m", "turnkit_django.testing.model_server", str(tmp_path / "s.json")]
        port = server.server_port
        command += ["--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert f"cannot listen on port {port} of 127.0.0.1" in done.stderr
    assert "take another port; 0 takes a free one" in done.stderr


@pytest.mark.parametrize("port", [-1, 70_000])
def test_a_port_that_is_none_is_refused_by_number(port: int) -> None:
    with pytest.raises(ConfigError, match=f"cannot listen on port {port} of"), model_server([], port=port):
        pass


def test_a_step_that_is_none_is_refused_at_the_start_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"steps": [{"text": "fine"}, {"txt": "x"}]}')
    command = [sys.executable, "-m", "turnkit_django.testing.model_server", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert "step 2 of the script: expected" in line
    assert '{"text": "…"}' in line
    assert "{'txt': 'x'}" in line
