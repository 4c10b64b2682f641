"""A script behind a real OpenAI-compatible server on loopback, so that litellm is exercised for real.

In a test: `with model_server([text("hi")]) as server:` and point `OPENAI_API_BASE` at `server.base_url`. By hand:
`python -m turnkit_django.testing.model_server SCRIPT [--port 0]`.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

from turnkit_django.clients.chat import RequestForm, usage_of
from turnkit_django.core.usage import Usage
from turnkit_django.errors import ConfigError, ModelError, TransientModelError
from turnkit_django.testing.provider_state import ProviderStates
from turnkit_django.testing.script import Script, ScriptedFailure, ScriptPlayer, ScriptRequest
from turnkit_django.testing.streams import events_of
from turnkit_django.testing.strict import check_request

_SCRIPT = 'a JSON file {"steps": [{"text": "…"}, {"call": ["tool", {…}]}, …]} or package.module:name'


class ModelServer(ThreadingHTTPServer):
    """The running server.

    Attributes:
        requests: The decoded bodies, in order.
        violations: Every strict rule that a request broke; such a request was answered with 400.
        usages: The usage of each answer handed out; None where it reported none.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, script: Script, *, port: int, strict: bool, form: RequestForm | None) -> None:
        self._player = ScriptPlayer(script)
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except (OSError, OverflowError) as error:
            advice = "stop what listens there, or take another port; 0 takes a free one"
            raise ConfigError(f"cannot listen on port {port} of 127.0.0.1 ({error}): {advice}") from error
        self.requests: list[dict[str, Any]] = []
        self.violations: list[str] = []
        self.usages: list[Usage | None] = []
        self._states = ProviderStates()
        self._strict = strict
        self._form = form
        self._lock = threading.Lock()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def overrun(self) -> int:
        """How often the script had nothing left to say."""
        return self._player.overrun

    @property
    def usage(self) -> Usage:
        """What was handed out so far, in total."""
        with self._lock:
            return sum((usage for usage in self.usages if usage), Usage())

    def answer(self, body: dict[str, Any]) -> dict[str, Any] | ScriptedFailure:
        """Record a request, check it, and play the next step."""
        with self._lock:
            self.requests.append(body)
        if found := self._check(body):
            with self._lock:
                self.violations.extend(found)
            return ScriptedFailure(status=400, message="; ".join(found))
        try:
            answer = self._player.answer(ScriptRequest(body, metadata=body.get("metadata") or {}))
        except Exception as error:  # a callable of the script failed: the client must hear of it
            answer = error
        if isinstance(answer, BaseException):
            return _failure_of(answer)
        if isinstance(answer, dict):
            self._hand_out(answer)
        return answer

    def _check(self, body: dict[str, Any]) -> list[str]:
        if not self._strict:
            return []
        if self._form is None:
            return check_request(body, states=self._states)
        pattern, empty = self._form.call_id_pattern, self._form.empty_content
        return check_request(body, call_id_pattern=pattern, empty_content=empty, states=self._states)

    def _hand_out(self, answer: dict[str, Any]) -> None:
        for choice in answer.get("choices") or []:
            if isinstance(choice, dict):
                self._states.record(choice.get("message") or {}, "")
        if "error" not in answer:
            with self._lock:
                self.usages.append(usage_of(answer))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent about clients that hung up, such as those that were killed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _failure_of(error: BaseException) -> ScriptedFailure:
    message = f"{type(error).__name__}: {error}"
    if isinstance(error, ModelError):
        status = error.status_code or (503 if isinstance(error, TransientModelError) else 400)
        return ScriptedFailure(status, str(error), getattr(error, "retry_after", None))
    return ScriptedFailure(status=500, message=message)


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent: standard output carries the address."""

    def do_GET(self) -> None:
        if self.path.rstrip("/") != "/v1/models":
            return self._fail(ScriptedFailure(404, f"unknown path {self.path}"))
        models = [{"id": "scripted", "object": "model", "created": 0, "owned_by": "turnkit"}]
        return self._send({"object": "list", "data": models})

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.rstrip("/") != "/v1/chat/completions":
            return self._fail(ScriptedFailure(404, f"unknown path {self.path}"))
        try:
            body = json.loads(content)
        except ValueError as error:
            return self._fail(ScriptedFailure(400, f"the body is not JSON: {error}"))
        if not isinstance(body, dict):
            return self._fail(ScriptedFailure(400, "the body is not a JSON object"))
        answer = self.server.answer(body)
        if isinstance(answer, ScriptedFailure):
            return self._fail(answer)
        return self._stream(answer, body=body) if body.get("stream") else self._send(answer)

    def _fail(self, failure: ScriptedFailure) -> None:
        headers = {} if failure.retry_after is None else {"Retry-After": str(failure.retry_after)}
        self._send(failure.body(), status=failure.status, headers=headers)

    def _stream(self, answer: dict[str, Any], *, body: dict[str, Any]) -> None:
        options = body.get("stream_options") or {}
        self._write(events_of(answer, has_usage=bool(options.get("include_usage"))), kind="text/event-stream")

    def _send(self, answer: dict[str, Any], *, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._write(json.dumps(answer).encode(), kind="application/json", status=status, headers=headers)

    def _write(self, content: bytes, *, kind: str, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        # litellm never closes its clients: a connection kept alive would outlive the server as an unclosed socket.
        fixed = {"Content-Type": kind, "Content-Length": str(len(content)), "Connection": "close"}
        for name, value in (fixed | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def model_server(
    script: Script, *, port: int = 0, strict: bool = True, form: RequestForm | None = None
) -> Iterator[ModelServer]:
    """Serve `script` at `server.base_url` until the block ends.

    Args:
        script: See `turnkit_django.testing.script`. Its exceptions become HTTP errors.
        port: Where to listen on loopback; 0 takes a free one.
        strict: Answer 400 to requests that a strict provider would refuse.
        form: What the model wants of requests; None takes any of the usual forms.

    Raises:
        ConfigError: If a step of a list is none, or the port cannot be listened on.
    """
    server = ModelServer(script, port=port, strict=strict, form=form)
    # A short poll: it is also how long the end takes.
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="model-server")
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def load_script(source: str) -> Script:
    """The script named on a command line.

    Raises:
        ConfigError: Says what was expected.
    """
    try:
        if source.endswith(".json"):
            script: Any = json.loads(Path(source).read_text(encoding="utf-8"))["steps"]
        else:
            module, _, name = source.partition(":")
            script = getattr(import_module(module), name)
    except (OSError, ValueError, KeyError, TypeError, ImportError, AttributeError) as error:
        raise ConfigError(f"expected {_SCRIPT}, got {source!r} ({type(error).__name__}: {error})") from None
    if not callable(script) and not isinstance(script, list | tuple | dict):
        raise ConfigError(f"expected {_SCRIPT} with a list of steps or a callable, got a {type(script).__name__}")
    return cast("Script", script)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve a script until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m turnkit_django.testing.model_server", description=__doc__)
    parser.add_argument("script", metavar="SCRIPT", help=_SCRIPT)
    parser.add_argument("--port", type=int, default=0, help="where to listen on loopback; 0 takes a free port")
    options = parser.parse_args(arguments)
    stopped: SimpleQueue[int] = SimpleQueue()  # an Event's lock is not reentrant, and a signal may come inside it
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: stopped.put(number))
    try:
        with model_server(load_script(options.script), port=options.port) as server:
            sys.stdout.write(f"listening on {server.base_url}\n")
            sys.stdout.flush()
            stopped.get()
    except ConfigError as error:
        sys.stderr.write(" ".join(f"model_server: {error}".split()) + "\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
