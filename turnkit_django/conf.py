"""The only reader of `settings.TURNKIT`: a typed, frozen value.

Precedence: call > turn > agent > settings > default.
"""

from __future__ import annotations

import difflib
import inspect
import os
import traceback
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType, UnionType

from django.conf import settings as django_settings
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.utils.functional import Promise
from django.utils.module_loading import import_string

from turnkit_django.core.content import is_storable, shown
from turnkit_django.core.cost import rate_problem
from turnkit_django.core.events import receiver_problem
from turnkit_django.core.redaction import looks_secret, redact, url_passwords
from turnkit_django.core.requests import MOST, form_problem
from turnkit_django.errors import ConfigError

_RATE_KEYS = frozenset({"input", "output", "cache_read", "cache_write", "thinking"})
_FORM_KEYS = frozenset({"call_id_length", "empty_content"})
_MAY_BE_ZERO = frozenset({"MAX_RECOVERIES", "MODEL_RETRIES", "MAX_ITERATIONS", "MAX_DEPTH", "MAX_HOPS"})
_WAITS = frozenset({"LEASE_SECONDS", "MODEL_TIMEOUT", "TOOL_TIMEOUT", "MAX_RETRY_AFTER", "WORKER_SLICE"})
_KINDS: Mapping[object, str] = {str: "a text", int: "a whole number", Mapping: "a dict", type(None): "None"}
_METHODS = {
    "CLIENT": ("validate", "complete"),
    "DISPATCHER": ("send_wake", "is_stopping", "note_reconcile", "last_reconcile"),
}
_LONGEST_WAIT = 2_147_483  # seconds; a wait of the operating system counts milliseconds in 32 bits
_DEEPEST = 8
_LONGEST_TEXT = 100_000  # cleaning takes about a second for a million characters
_LONGEST_SECRET = 4096


@dataclass(frozen=True, slots=True)
class Settings:
    """`TURNKIT` with its defaults. Durations are seconds."""

    DEFAULT_MODEL: str = "anthropic/claude-sonnet-4-5"
    """Any litellm model string; for agents that name none."""
    CLIENT: str = "turnkit_django.clients.LiteLLMClient"
    """Dotted path of the class that calls models."""
    DISPATCHER: str = "turnkit_django.dispatch.RQDispatcher"
    """Dotted path of the class that sends wake-ups."""
    QUEUE: str = "turnkit"
    """Name of the queue in `RQ_QUEUES`."""
    LEASE_SECONDS: int = 60
    """How long a claim lives without renewal; it is renewed every third of it."""
    MAX_RECOVERIES: int = 5
    """A turn whose workers died more often than this fails."""
    MAINTENANCE_BATCH: int = 100
    """Most rows of one kind that one maintenance pass looks at."""
    MAX_ITERATIONS: int = 25
    """Model calls of a turn."""
    MAX_DEPTH: int = 3
    """How deep agents may call agents under a root turn, which has depth 0."""
    MAX_HOPS: int = 20
    """How many messages of agents, one after another, may lead to the next one; 0 lets no agent send any."""
    TIMEOUT: int | None = None
    """Wall time of a turn from its submission or inline start; None is 300 inline and no limit in the background."""
    MAX_OUTPUT_TOKENS: int = 8192
    """Sent with every model call."""
    TOOL_TIMEOUT: int = 300
    """Most seconds for the body of a tool; past them its worker counts as dead when the lease ends."""
    MODEL_TIMEOUT: int = 600
    """Most seconds for a model call, and without a byte from a provider."""
    MODEL_RETRIES: int = 5
    """Transient model errors in a row before a submitted turn fails; an inline turn fails at the first one."""
    MAX_RETRY_AFTER: int = 900
    """A provider's longer Retry-After is cut to this."""
    MAX_BROKEN_REPLIES: int = 3
    """Cut or unusable replies in a row before the turn fails."""
    WORKER_SLICE: int = 60
    """Seconds one `wake` job keeps claiming before it hands over to a new one."""
    ON_EVENT: str | None = None
    """Dotted path of a callable that is called with every event, after the commit; None is nobody."""
    COST_RATES: Mapping[str, Mapping[str, typing.Any]] = field(default_factory=dict)
    """Prices by model, in US dollars per million tokens: `input output cache_read cache_write thinking`."""
    REQUEST_FORMS: Mapping[str, Mapping[str, typing.Any]] = field(default_factory=dict)
    """What a model wants, by model or prefix ending in `*`: `call_id_length` (int; ids of exactly that many letters
    and digits) and `empty_content` (`null`, `absent` or `empty`; the content of a message that only calls tools)."""


def raw() -> Mapping[str, object]:
    """`settings.TURNKIT` as written.

    Raises:
        ConfigError: If it is not a mapping.
    """
    value = getattr(django_settings, "TURNKIT", {})
    if not isinstance(value, Mapping):
        raise ConfigError(f"expected the setting `TURNKIT` to be a dict, got {type(value).__name__}")
    return value


def raw_value(name: str) -> object:
    """One setting as written, or its default; also if the settings have mistakes, for checks."""
    value = getattr(django_settings, "TURNKIT", {})
    default = getattr(Settings(), name)
    return value.get(name, default) if isinstance(value, Mapping) else default


def problems(values: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """What is wrong with `values`: the kind (`unknown` or `value`), the message and a hint."""
    hints = typing.get_type_hints(Settings)
    for name, value in values.items():
        if name not in hints:
            near = difflib.get_close_matches(str(name).upper(), hints, n=1)
            yield (
                "unknown",
                f"unknown setting TURNKIT[{name!r}]",
                (f"did you mean {near[0]!r}?" if near else f"known settings: {', '.join(sorted(hints))}"),
            )
        elif message := _wrong(name, value, hints[name]):
            yield "value", f"TURNKIT[{name!r}]: {message}", _reference(name)


def _reference(name: str) -> str:
    return f"default: {getattr(Settings(), name)!r}; see `{name}` in docs/settings.md"


def _wrong(name: str, value: object, hint: object) -> str:
    allowed = typing.get_args(hint) if isinstance(hint, UnionType) else (typing.get_origin(hint) or hint,)
    if isinstance(value, bool) or not isinstance(value, allowed):
        kinds = " or ".join(_KINDS[kind] for kind in allowed)
        return f"expected {kinds}, got {shown(value)} ({type(value).__name__}){_path_instead(name, value)}"
    match value:
        case int():
            return _wrong_number(name, value)
        case str():
            return _wrong_text(name, value)
        case Mapping():
            return _wrong_table(value, of_rates=name == "COST_RATES")
    return ""


def _path_instead(name: str, value: object) -> str:
    """What to write instead of a class or a function, if its module has it by name."""
    path = getattr(value, "__qualname__", "")
    if name not in {*_METHODS, "ON_EVENT"} or not str(path).isidentifier():
        return ""
    return f"; give its dotted path as a text: '{getattr(value, '__module__', '')}.{path}'"


def _wrong_number(name: str, value: int) -> str:
    least = 0 if name in _MAY_BE_ZERO else 1
    if value < least:
        return f"expected a whole number of at least {least}, got {shown(value)}"
    if name in _WAITS and value > _LONGEST_WAIT:
        return f"expected at most {_LONGEST_WAIT} seconds, got {shown(value)}"
    return "" if value <= MOST else f"expected at most {MOST}, got {shown(value)}"


def _wrong_text(name: str, value: str) -> str:
    if not value.strip():
        return f"expected text that is not empty, got {value!r}"
    if not is_storable(value):
        return f"expected text without NUL and lone surrogates, got {shown(value)}"
    if name == "ON_EVENT":
        return _wrong_receiver(value)
    return _wrong_class(value, _METHODS[name]) if name in _METHODS else ""


def _wrong_class(path: str, methods: tuple[str, ...]) -> str:
    found = _imported(path)
    if isinstance(found, _Unimportable):
        return f"expected the dotted path of a class, got {path!r}: {found.reason}"
    if not isinstance(found, type):
        return f"expected the dotted path of a class, got {path!r}, which is {_kind(found)}"
    if missing := [method for method in methods if not callable(getattr(found, method, None))]:
        wanted = ", ".join(f"`{method}`" for method in methods)
        lacks = ", ".join(f"`{method}`" for method in missing)
        return f"expected a class with the methods {wanted}, got {path!r}, which lacks {lacks}"
    return ""


@dataclass(frozen=True)
class _Unimportable:
    reason: str


def _imported(path: str) -> object:
    """What the path names. The module is the application's, and may raise anything."""
    try:
        return import_string(path)
    except ImportError as error:
        return _Unimportable(str(error))
    except Exception as error:
        return _Unimportable(f"importing it raised {type(error).__name__}: {error}")


def _wrong_receiver(path: str) -> str:
    found = _imported(path)
    if isinstance(found, _Unimportable):
        return f"expected the dotted path of a callable, got {path!r}: {found.reason}"
    needed = receiver_problem(found)
    return f"expected the dotted path of {needed}, got {path!r}, which is {_kind(found)}" if needed else ""


def _kind(found: object) -> str:
    """What sort of thing it is. Its repr would tell more of this machine than of the mistake."""
    if isinstance(found, type):
        return "a class"
    if inspect.isroutine(found):
        return "an async function" if inspect.iscoroutinefunction(found) else "a function"
    kind = "a module" if isinstance(found, ModuleType) else f"an object of type {type(found).__name__}"
    return kind if callable(found) else f"{kind} and cannot be called"


def _wrong_table(table: Mapping[object, object], *, of_rates: bool) -> str:
    for model, row in table.items():
        if not isinstance(model, str):
            return f"expected the name of a model, got {shown(model)} ({type(model).__name__})"
        if of_rates and "*" in model:
            return f"expected the whole name of a model, got {model!r}; prices have no `*`"
        if "*" in model[:-1]:
            return f"expected the name of a model, or how it begins with one `*` at the end, got {model!r}"
        if problem := _wrong_row(row, of_rates=of_rates):
            return f"for {model!r}: {problem}"
    return ""


def _wrong_row(row: object, *, of_rates: bool) -> str:
    if not isinstance(row, Mapping):
        return f"expected a dict, got {shown(row)} ({type(row).__name__})"
    known = sorted(_RATE_KEYS if of_rates else _FORM_KEYS)
    for key in row:
        if key not in known:
            near = difflib.get_close_matches(str(key).lower(), known, n=1)
            advice = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
            return f"unknown key {shown(key)} ({advice})"
    return _wrong_rates(row) if of_rates else form_problem(row)


def _wrong_rates(row: Mapping[str, object]) -> str:
    wrong = ((name, rate_problem(rate)) for name, rate in row.items())
    return next((f"expected `{name}` to be {problem}" for name, problem in wrong if problem), "")


@cache
def get() -> Settings:
    """The settings in force.

    Raises:
        ConfigError: Names the first setting that is unknown or has a wrong value.
    """
    values = raw()
    for _kind, message, hint in problems(values):
        raise ConfigError(f"{message}; {hint}")
    return Settings(**typing.cast("dict[str, typing.Any]", values))


@receiver(setting_changed)
def _forget(*, setting: str, **_: object) -> None:
    forget_secrets()
    if setting == "TURNKIT":
        get.cache_clear()


def clean(text: str) -> str:
    """`text` without the secrets this process knows: values of secret-looking environment variables and settings.

    Also without passwords in the URLs of both, and without whatever looks like a credential. A very long text is cut.
    """
    if len(text) > _LONGEST_TEXT:  # the end may be half a secret, which would not be known for one
        return f"{clean(text[:_LONGEST_TEXT])[:-_LONGEST_SECRET]}… [cut: {len(text):,} characters]"
    found = set(known_secrets())
    for name, value in os.environ.items():
        found.update(url_passwords(value))
        if looks_secret(name):
            found.add(value)
    return redact(text, secrets=found)


def clean_traceback(problem: BaseException) -> str:
    """The traceback of `problem`, cleaned; for the log instead of `exc_info`, which would print it raw."""
    return clean("".join(traceback.format_exception(problem))).rstrip("\n")


@cache
def known_secrets() -> frozenset[str]:
    """The secrets in the settings. They are walked once, not for each error."""
    names = [name for name in dir(django_settings) if name.isupper()]
    # Past the lazy object, which warns of old settings and refuses an empty SECRET_KEY.
    holder = vars(django_settings)["_wrapped"]
    values = ((name, getattr(holder, name, None)) for name in names)
    return frozenset(secret for name, value in values for secret in _secrets_of(name, value, is_secret=False))


def forget_secrets() -> None:
    """Walk the settings again at the next error."""
    known_secrets.cache_clear()


def _secrets_of(name: str, value: object, *, is_secret: bool, depth: int = 0) -> Iterator[str]:
    """The secrets in one setting. A name says what its texts are; of a dict it says so only at the top."""
    is_named = looks_secret(name)
    match value:
        case Mapping() if depth < _DEEPEST:
            of_all = is_secret or (is_named and depth == 0)
            for key, item in value.items():
                yield from _secrets_of(str(key), item, is_secret=of_all, depth=depth + 1)
        case list() | tuple() | set() | frozenset() if depth < _DEEPEST:
            for item in value:
                yield from _secrets_of("", item, is_secret=is_secret or is_named, depth=depth + 1)
        case str() | bytes() | Promise():
            text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
            yield from url_passwords(text)
            if is_secret or is_named:
                yield text
