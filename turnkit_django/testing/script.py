"""The language of scripted answers, shared by `ScriptedModel` and `model_server`.

A step is one answer:

- `text("…")` or `{"text": "…"}`
- `call("tool", {...}, id=None)` or `{"call": ["tool", {...}]}`; a list of them, texts included, is one answer
- `raw({...})` or `{"raw": {...}}`: a whole `chat.completion` body, or one choice of it, used as it is. A bare choice
  gets the usual usage, its own `usage`, or none if that is None or `"(absent)"`. A body without `choices` but with
  `error` is an error inside a 200.
- `{"error": {"status": 429, "retry_after": 2, "message": "…"}}`: an HTTP error; without `status` an error inside a 200
- an exception, or its class, to raise
- a callable of the `ScriptRequest` returning any of these

A script is a list of steps; or one callable, asked for every answer; or a mapping of conversation to a script of its
own. A list with a step that is none of these is refused at once. When a script has nothing to say, it answers "done",
and `overrun` counts that.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from turnkit_django.core.requests import ToolSpec
from turnkit_django.errors import ConfigError

Step: TypeAlias = "Mapping[str, Any] | list[Any] | BaseException | type[BaseException] | Callable[[ScriptRequest], Any]"
Script: TypeAlias = "Iterable[Step] | Callable[[ScriptRequest], Any] | Mapping[Any, Any]"

USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
ABSENT = "(absent)"
_WANTED = (
    'expected text("…") or {"text": "…"}, call("tool", {…}) or {"call": ["tool", {…}]}, a list of them, raw({…}) or '
    '{"raw": {…}}, {"error": {"status": …}}, an exception or a callable'
)


def text(answer: str) -> dict[str, Any]:
    """An answer in words."""
    return {"text": answer}


def call(tool: str | None, arguments: object = None, *, id: str | None = None) -> dict[str, Any]:
    """A call of `tool`.

    Args:
        tool: Its name.
        arguments: An object; a `str` is sent as it is, so that it may be broken; None is an empty object.
        id: The provider's call id; None makes a fresh one, `""` stays empty.
    """
    return {"call": [tool, {} if arguments is None else arguments, id]}


def raw(response: Mapping[str, Any]) -> dict[str, Any]:
    """A whole `chat.completion` body, or one choice of it, as it is."""
    return {"raw": response}


@dataclass(frozen=True, slots=True)
class ScriptedFailure:
    """An HTTP error to answer with."""

    status: int
    message: str
    retry_after: float | str | None = None

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": "scripted_error", "param": None, "code": None}}


@dataclass(frozen=True)
class ScriptRequest(Mapping[str, Any]):
    """What a callable step sees: the same behind `ScriptedModel` and `model_server`.

    As a mapping it is the body of the request: `request["messages"][0]["content"]`.

    Attributes:
        body: The decoded body.
        metadata: `conversation_id` and so on; behind the server only what the body itself carries.
    """

    body: Mapping[str, Any]
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Any:
        return self.body[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.body)

    def __len__(self) -> int:
        return len(self.body)

    @property
    def model(self) -> str:
        return str(self.body.get("model") or "")

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages without the system prompt."""
        return [message for message in self.body.get("messages") or [] if message.get("role") not in _SYSTEM]

    @property
    def instructions(self) -> str:
        """The system prompt."""
        prompts = [m for m in self.body.get("messages") or [] if m.get("role") in _SYSTEM]
        return "\n\n".join(_words(message) for message in prompts)

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        functions = [tool["function"] for tool in self.body.get("tools") or []]
        return tuple(ToolSpec(f["name"], f.get("description", ""), f.get("parameters", {})) for f in functions)

    @property
    def tool_names(self) -> list[str]:
        return [tool.name for tool in self.tools]

    @property
    def conversation(self) -> str:
        """The conversation's id; behind the server, which is not told it, the text of the first user message."""
        return self.metadata.get("conversation_id") or self.first_text

    @property
    def first_text(self) -> str:
        """The first user message."""
        return next((_words(message) for message in self.messages if message.get("role") == "user"), "")

    @property
    def last_text(self) -> str:
        """The last message, whoever it is from."""
        return _words(self.messages[-1]) if self.messages else ""


_SYSTEM = frozenset({"system", "developer"})


def _words(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return content or ""


class ScriptPlayer:
    """Plays a script, thread-safe: one step an answer."""

    def __init__(self, script: Script) -> None:
        self._lock = threading.Lock()
        if isinstance(script, Mapping) and set(script) == {"steps"}:  # the form of a JSON file
            script = script["steps"]
        self._script = script if callable(script) or isinstance(script, Mapping) else _checked(script)
        self._keyed: dict[str, ScriptPlayer] = {}
        self._position = 0
        self._answers = 0
        self.overrun = 0

    def extend(self, steps: Iterable[Step]) -> None:
        """Add steps to the end of a list."""
        with self._lock:
            if not isinstance(self._script, list):
                raise ConfigError(f"expected a script that is a list, got a {type(self._script).__name__}")
            self._script.extend(_checked(steps, after=len(self._script)))

    def answer(self, request: ScriptRequest) -> dict[str, Any] | ScriptedFailure | BaseException:
        """The next answer: a response body, an HTTP error, or an exception to raise."""
        step = self._next(request)
        while callable(step):  # a class of exceptions makes one
            step = step() if _is_exception_class(step) else step(request)
        with self._lock:
            self._answers += 1
            number = self._answers
            if step is None:
                self.overrun += 1
        return _answer_of(text("done") if step is None else step, model=request.model, number=number)

    def _next(self, request: ScriptRequest) -> Any:
        with self._lock:
            script = self._script
            if isinstance(script, list):
                self._position += 1
                return script[self._position - 1] if self._position <= len(script) else None
            if isinstance(script, Mapping):
                player = self._player_for(request, scripts=script)
                return player._next(request) if player else None
        return script

    def _player_for(self, request: ScriptRequest, *, scripts: Mapping[Any, Any]) -> ScriptPlayer | None:
        wanted = {request.conversation, request.first_text}
        for key in scripts:
            name = str(getattr(key, "pk", key))
            if name in wanted:
                if name not in self._keyed:
                    self._keyed[name] = ScriptPlayer(scripts[key])
                return self._keyed[name]
        return None


def _checked(steps: Iterable[Step], *, after: int = 0) -> list[Step]:
    """The steps, of which those that are no callables are tried; `after` so many others."""
    checked = list(steps)
    for number, step in enumerate(checked, start=after + 1):
        try:
            if not callable(step):
                _answer_of(step, model="", number=number)
        except ConfigError as problem:
            raise ConfigError(f"step {number} of the script: {problem}") from problem
    return checked


def _is_exception_class(step: object) -> bool:
    return isinstance(step, type) and issubclass(step, BaseException)


def _answer_of(step: Any, *, model: str, number: int) -> dict[str, Any] | ScriptedFailure | BaseException:
    if isinstance(step, BaseException):
        return step
    match step:
        case {"error": {"status": int()}}:
            return _failure(step["error"])
        case {"raw": Mapping()}:
            return _completion(step["raw"], model=model, number=number)
        case {"choices": _} | {"message": _} | {"error": _}:
            return _completion(step, model=model, number=number)
        case {"text": _} | {"call": _}:
            return _spoken([step], model=model, number=number)
        case [_, *_]:
            return _spoken(step, model=model, number=number)
    raise ConfigError(f"{_WANTED}; got {step!r:.120}")


def _failure(error: Mapping[str, Any]) -> ScriptedFailure:
    status = error["status"]
    message = error.get("message") or f"scripted error {status}"
    return ScriptedFailure(status=status, message=str(message), retry_after=error.get("retry_after"))


def _spoken(parts: list[Any], *, model: str, number: int) -> dict[str, Any]:
    words: list[str] = []
    calls: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case {"text": str(answer)}:
                words.append(answer)
            case {"call": [tool, arguments, *rest]}:
                call_id = rest[0] if rest and rest[0] is not None else f"call_{number}_{len(calls) + 1}"
                sent = arguments if isinstance(arguments, str) else json.dumps(arguments)
                calls.append({"id": call_id, "type": "function", "function": {"name": tool, "arguments": sent}})
            case _:
                raise ConfigError(f"expected `text(…)` or `call(…)` in an answer, got {part!r:.120}")
    message: dict[str, Any] = {"role": "assistant", "content": "\n".join(words) if words else None}
    if calls:
        message["tool_calls"] = calls
    choice = {"message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return _completion(choice, model=model, number=number)


def _completion(response: Mapping[str, Any], *, model: str, number: int) -> dict[str, Any]:
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": number, "model": model}
    if "message" not in response:
        body = dict(response) if "error" in response else {**head, **response}
    else:
        choice = {key: value for key, value in response.items() if key != "usage"}
        choice["message"] = {"role": "assistant", **choice["message"]}
        choice = {"index": 0, "finish_reason": "stop", **choice}
        body = {**head, "choices": [choice], "usage": response.get("usage", USAGE)}
    if body.get("usage", ABSENT) in (None, ABSENT):
        body.pop("usage", None)
    return body
