"""How long to wait before the next try. Seconds."""

from __future__ import annotations

import random

_LONGEST = 60.0


def recovery_delay(attempts: int) -> float:
    """Before a turn whose worker died is claimed again: at once the first time, then 1, 2, 4 … 60."""
    return 0.0 if attempts <= 1 else min(2.0 ** min(attempts - 2, 16), _LONGEST)


def retry_delay(failures: int, *, retry_after: float | None, longest: float) -> float:
    """Before a failed model call is repeated.

    Args:
        failures: Transient errors in a row, this one included.
        retry_after: What the provider asked for, or None.
        longest: Bound of the result.

    Returns:
        The provider's wish, or 1, 2, 4 … 60 with up to half of it taken off, so that parked turns do not come back
        all at the same moment.
    """
    if retry_after is not None:
        return min(max(retry_after, 0.0), longest)
    delay = min(2.0 ** min(failures - 1, 16), _LONGEST)
    return min(delay * random.uniform(0.5, 1.0), longest)  # noqa: S311  spreads load, hides nothing
