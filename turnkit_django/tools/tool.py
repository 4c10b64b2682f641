"""What a model may call: the `Tool` class, and the decorator that makes one of a function."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias, get_args, overload

from asgiref.sync import async_to_sync

from turnkit_django.core.content import as_text, clean_text
from turnkit_django.core.requests import ToolSpec
from turnkit_django.errors import ConfigError
from turnkit_django.tools.arguments import Checker, parse_arguments
from turnkit_django.tools.arguments import ValidArguments as ValidArguments
from turnkit_django.tools.context import ToolContext
from turnkit_django.tools.schema import CONTEXT, read_parameters

Recovery: TypeAlias = Literal["unknown", "replay_safe"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True, slots=True)
class _Definition:
    """A tool's attributes, read and checked once."""

    spec: ToolSpec
    checker: Checker
    takes_context: bool


class Tool:
    """Base of tools written as classes; list the class or an instance in `Agent(tools=...)`.

    Write `call` with annotated parameters; a parameter named `context` receives the `ToolContext`. The docstring of
    `call` describes the parameters. `async def call` works too. The attributes are read when the tool is first used:
    change none of them afterwards.

    Attributes:
        name: What the model calls it by; default: the class name in snake case.
        description: What it does, for the model; default: the docstring of the class, else of `call`.
        usage_hint: When to use it; appended to the description.
        parameters: A JSON Schema instead of annotations; `call` then takes `**arguments`.
        terminal: Whether a successful call ends the turn with the text of `completion`.
        recovery: `"unknown"`: a started call without a recorded result is never run again. `"replay_safe"`: it may be.
        timeout: How long the body may take; None: the setting `TOOL_TIMEOUT`. A worker whose tool takes longer counts
            as dead when its lease ends, so that the outcome is unknown.
        coordinates: Whether the body only says what the engine shall do: it returns a value of `core/effects.py`, and
            does nothing that lasts. Such a call runs again after a crash; what it asked for happens once.
    """

    name: str = ""
    description: str = ""
    usage_hint: str = ""
    parameters: Mapping[str, object] | None = None
    terminal: bool = False
    recovery: Recovery = "unknown"
    timeout: timedelta | None = None
    coordinates: bool = False

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Do the work. What it returns goes through `normalize_result`; raise `ToolError` to tell the model why not."""
        raise NotImplementedError

    def completion(self, result: Any) -> str:
        """The last text of a turn that this terminal tool ended; `result` is the normalised result."""
        value = result.get("result") if isinstance(result, Mapping) else None
        if isinstance(value, str) and value.strip():
            return value
        return f"Completed via {self.spec().name}." if value is None or value == "" else as_text(value)

    def spec(self) -> ToolSpec:
        """The tool as the model sees it.

        Raises:
            ConfigError: The definition is wrong; says where it stands and what to change.
        """
        return self._definition.spec

    def validate(self, arguments_text: str | None) -> ValidArguments:
        """Check the text a model sent; blank or None counts as no arguments.

        Raises:
            ToolValidationError: With a message for the model.
        """
        return self._definition.checker.check(parse_arguments(arguments_text))

    def invoke(self, arguments: ValidArguments, *, context: ToolContext) -> object:
        """Run the body with what `validate` returned, and wait for it if it is async. Its exceptions pass."""
        extra = {CONTEXT: context} if self._definition.takes_context else {}
        result = self._body()(**arguments.values, **extra)
        return async_to_sync(_settled)(result) if inspect.isawaitable(result) else result

    def _body(self) -> Callable[..., object]:
        return self.call

    @functools.cached_property
    def _definition(self) -> _Definition:
        return _define(self, body=self._body())


class FunctionTool(Tool):
    """A function as a tool, made by `@tool`. Calling it calls the function, unchecked."""

    def __init__(self, function: Callable[..., object], **options: Any) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = str(getattr(function, "__name__", ""))
        for option, value in options.items():
            if value is not None:
                setattr(self, option, value)
        self.spec()  # a wrong definition fails where it is written

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<FunctionTool {self.name}>"

    def call(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def _body(self) -> Callable[..., object]:
        return self.function


@overload
def tool(function: Callable[..., object], /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    usage_hint: str = "",
    parameters: Mapping[str, object] | None = None,
    terminal: bool = False,
    recovery: Recovery = "unknown",
    timeout: timedelta | None = None,
) -> Callable[[Callable[..., object]], FunctionTool]: ...
def tool(
    function: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    usage_hint: str = "",
    parameters: Mapping[str, object] | None = None,
    terminal: bool = False,
    recovery: Recovery = "unknown",
    timeout: timedelta | None = None,
) -> FunctionTool | Callable[[Callable[..., object]], FunctionTool]:
    """Make a tool of a function; use it bare or with options. The options are the attributes of `Tool`.

    Raises:
        ConfigError: The signature, a name or an option cannot be used.
    """

    def make(function: Callable[..., object]) -> FunctionTool:
        if not inspect.isfunction(function) and not inspect.ismethod(function):
            raise ConfigError(
                f"`@tool`: expected a function, got {function!r:.80}; "
                "for a class, inherit from `Tool` instead; pass options by keyword"
            )
        return FunctionTool(
            function,
            name=name,
            description=description,
            usage_hint=usage_hint,
            parameters=parameters,
            terminal=terminal,
            recovery=recovery,
            timeout=timeout,
        )

    return make if function is None else make(function)


def as_tool(entry: object) -> Tool:
    """The tool that an entry of `Agent(tools=...)` stands for.

    Raises:
        ConfigError: The entry is no tool, or a class that must be given arguments.
    """
    if isinstance(entry, type) and issubclass(entry, Tool):
        return _instance(entry)
    if isinstance(entry, Tool):
        return entry
    advice = "decorate it with `@tool`" if inspect.isroutine(entry) else "list tools made by `@tool` or `Tool` classes"
    raise ConfigError(f"expected a tool, got {entry!r:.80} ({type(entry).__name__}); {advice}")


def _instance(kind: type[Tool]) -> Tool:
    try:
        inspect.signature(kind).bind()
    except TypeError as error:
        raise ConfigError(
            f"tool class `{kind.__qualname__}` of `{kind.__module__}`: expected a constructor without arguments, "
            f"got: {error}; pass an instance: tools=[{kind.__name__}(...)]"
        ) from None
    return kind()


def _define(tool: Tool, *, body: Callable[..., object]) -> _Definition:
    kind = type(tool)
    name = tool.name or _WORD_STARTS.sub("_", kind.__name__).lower()
    where = f"tool `{name}` ({_place(body, kind=kind)})"
    if getattr(body, "__func__", None) is Tool.call:
        raise ConfigError(f"{where}: expected a method `call`, got none; write `def call(self, ...)`")
    _check_options(tool, name=name, where=where)
    vars(tool)["name"] = name  # also where the class is frozen
    parameters = read_parameters(body, raw=tool.parameters, where=where)
    description = tool.description or _class_description(kind) or parameters.description
    text = "\n\n".join(part.strip() for part in (description, tool.usage_hint) if part.strip())
    spec = ToolSpec(name=name, description=clean_text(text), parameters=parameters.schema)
    return _Definition(spec, parameters.checker, parameters.takes_context)


def _check_options(tool: Tool, *, name: object, where: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{where}: expected a name of 1 to 64 letters, digits, `_` or `-`, got {name!r:.120}; set `name`"
        )
    for option in ("description", "usage_hint"):
        if not isinstance(value := getattr(tool, option), str):
            raise ConfigError(f"{where}: expected text in `{option}`, got {value!r:.80} ({type(value).__name__})")
    if not isinstance(tool.terminal, bool):
        raise ConfigError(f"{where}: expected True or False in `terminal`, got {tool.terminal!r:.80}")
    if tool.timeout is not None and (not isinstance(tool.timeout, timedelta) or tool.timeout <= timedelta()):
        raise ConfigError(
            f"{where}: expected `timeout` to be a timedelta of more than 0, or None, got {tool.timeout!r:.80}"
        )
    if tool.coordinates and tool.recovery != "unknown":
        raise ConfigError(f"{where}: expected no `recovery` for a tool that coordinates: what it asks for happens once")
    if tool.recovery not in get_args(Recovery):
        raise ConfigError(
            f'{where}: expected `recovery` to be "unknown" or "replay_safe", got {tool.recovery!r:.80}; '
            '"replay_safe" promises that running the call twice does no harm'
        )


def _place(body: Callable[..., object], *, kind: type[Tool]) -> str:
    """File and line of the body, else the class."""
    code = getattr(inspect.unwrap(body), "__code__", None)
    if code is None or getattr(body, "__func__", None) is Tool.call:
        return f"{kind.__module__}.{kind.__qualname__}"
    return f"{code.co_filename}:{code.co_firstlineno}"


def _class_description(kind: type[Tool]) -> str:
    """The nearest docstring that an application wrote: those of this module are for people, not for models."""
    for base in kind.__mro__:
        if base.__module__.startswith("turnkit_django.tools."):
            break
        text = inspect.cleandoc(base.__dict__.get("__doc__") or "")
        if text and not text.startswith(f"{base.__name__}("):  # what `dataclass` writes by itself
            return text
    return ""


async def _settled(result: Awaitable[object]) -> object:
    return await result
