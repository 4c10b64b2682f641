"""What the engine asks of a model client, and how its failures are classed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Protocol

from turnkit_django.core.requests import ModelReply, ModelRequest
from turnkit_django.errors import ModelError, PermanentModelError, TransientModelError

_RETRYABLE = frozenset({408, 409, 425, 429})


class ModelClient(Protocol):
    """Calls a model once. It never runs tools and never retries: the engine does both, durably.

    One instance serves many threads; the calls block.
    """

    def validate(self, model: str) -> None:
        """Check that `model` can be called from this process, without calling it.

        Raises:
            ModelAccessError: Names the environment variable that is missing.
        """

    def complete(self, request: ModelRequest) -> ModelReply:
        """Send one request and return what came back, unrepaired.

        Raises:
            TransientModelError: The same request may succeed later.
            PermanentModelError: The same request would fail again.
        """


def is_transient(status_code: int | None) -> bool:
    """Whether the same request may succeed later.

    Only a refusal of the request itself (4xx) is final. No status, or one that is no error, means that the answer got
    lost on the way.
    """
    return status_code is None or status_code in _RETRYABLE or not 400 <= status_code < 500


def model_error(
    message: str, *, status_code: int | None, is_lost: bool | None = None, retry_after: float | None = None
) -> ModelError:
    """The error of the right class for a provider's status. `is_lost` as in `ModelError`."""
    if is_transient(status_code):
        return TransientModelError(message, status_code=status_code, is_lost=is_lost, retry_after=retry_after)
    return PermanentModelError(message, status_code=status_code)


def retry_after_of(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Seconds that a `Retry-After` header asks to wait (a number or an HTTP date); None if there is no sound one."""
    value = next((text for name, text in headers.items() if name.lower() == "retry-after"), "").strip()
    try:
        seconds = float(value)
    except ValueError:
        return _seconds_until(value, now=now or datetime.now(UTC))
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _seconds_until(date: str, *, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
        if moment.tzinfo is None:  # "-0000": UTC, says RFC 5322
            moment = moment.replace(tzinfo=UTC)
        return max(0.0, (moment - now).total_seconds())
    except (ValueError, OverflowError):
        return None
