"""The only reader of `settings.TURNKIT`: a typed, frozen value.

Precedence: call > turn > agent > settings > default.
"""

from __future__ import annotations

import difflib
import os
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from django.conf import settings as django_settings
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.utils.module_loading import import_string

from turnkit_django.core.redaction import looks_secret, redact
from turnkit_django.errors import ConfigError

_RATE_KEYS = frozenset({"input", "output", "cache_read", "cache_write", "thinking"})
_FORM_KEYS = frozenset({"call_id_length", "empty_content"})


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
    TIMEOUT: int | None = None
    """Wall time of a turn from its submission or inline start; None is 300 inline and no limit in the background."""
    MAX_OUTPUT_TOKENS: int = 8192
    """Sent with every model call."""
    MODEL_TIMEOUT: int = 600
    """Most seconds without a byte from a provider."""
    MODEL_RETRIES: int = 5
    """Transient model errors in a row before the turn fails."""
    MAX_RETRY_AFTER: int = 900
    """A provider's longer Retry-After is cut to this."""
    MAX_BROKEN_REPLIES: int = 3
    """Cut or unusable replies in a row before the turn fails."""
    WORKER_SLICE: int = 60
    """Seconds one `wake` job keeps claiming before it hands over to a new one."""
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
            yield "value", f"TURNKIT[{name!r}]: {message}", "see the settings reference for its meaning"


def _wrong(name: str, value: object, hint: object) -> str:
    allowed = typing.get_args(hint) if hint == int | None else (typing.get_origin(hint) or hint,)
    if isinstance(value, bool) or not isinstance(value, allowed):
        names = " or ".join("None" if kind is type(None) else kind.__name__.lower() for kind in allowed)
        return f"expected {names}, got {value!r:.80} ({type(value).__name__})"
    if isinstance(value, int) and value < (0 if name in {"MAX_RECOVERIES", "MODEL_RETRIES", "MAX_ITERATIONS"} else 1):
        return f"expected a positive number, got {value}"
    if name in {"CLIENT", "DISPATCHER"}:
        return _wrong_path(str(value))
    if isinstance(value, Mapping):
        return _wrong_table(value, _RATE_KEYS if name == "COST_RATES" else _FORM_KEYS)
    return ""


def _wrong_path(path: str) -> str:
    try:
        found = import_string(path)
    except ImportError as error:
        return f"expected the dotted path of a class, got {path!r}: {error}"
    return "" if isinstance(found, type) else f"expected the dotted path of a class, got {path!r}: {found!r:.80}"


def _wrong_table(table: Mapping[str, object], keys: frozenset[str]) -> str:
    for model, row in table.items():
        if not isinstance(row, Mapping) or not set(row) <= keys:
            return f"expected for {model!r} a dict with keys out of {', '.join(sorted(keys))}, got {row!r:.120}"
    return ""


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
    if setting == "TURNKIT":
        get.cache_clear()


def clean(text: str) -> str:
    """`text` without the secrets this process knows: values of secret-looking environment variables and settings."""
    found = [value for name, value in os.environ.items() if looks_secret(name)]
    found.append(str(django_settings.SECRET_KEY))
    found.extend(str(database.get("PASSWORD") or "") for database in django_settings.DATABASES.values())
    return redact(text, secrets=found)
