"""Rates and tokens to money. Unknown is a value of its own: None, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final, TypeAlias

from turnkit_django.core.content import shown
from turnkit_django.core.usage import Usage

Rate: TypeAlias = "Decimal | int | float | str"

_MILLION: Final = 1_000_000
_HIGHEST_RATE: Final = 1_000_000  # so that no bill outgrows its column
_PLACES: Final = Decimal("1e-12")  # what the columns keep
_RATE_OF: Final = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cached_tokens": "cache_read",
    "cache_write_tokens": "cache_write",
    "thinking_tokens": "thinking",
}


def rate_problem(rate: object) -> str:
    """What is wrong with one price of `COST_RATES`; empty if nothing is."""
    try:
        is_sound = not isinstance(rate, bool) and 0 <= Decimal(str(rate)) <= _HIGHEST_RATE
    except (ArithmeticError, ValueError):
        is_sound = False
    if is_sound and isinstance(rate, Decimal | int | float | str):
        return ""
    got = f"{shown(rate)} ({type(rate).__name__})"
    return f'US dollars per million tokens, such as "2.50", from 0 to {_HIGHEST_RATE}, got {got}'


def money(amount: Rate) -> Decimal:
    """US dollars as they are stored, to twelve places. A float means what it prints, not its binary neighbour."""
    return Decimal(str(amount)).quantize(_PLACES)


def cost_of(usage: Usage, *, rates: Mapping[str, Rate]) -> Decimal | None:
    """What `usage` costs at `rates`, in US dollars; None if that cannot be known.

    Args:
        usage: The tokens. A call that was never heard of again makes the cost unknown.
        rates: US dollars per million tokens by `input output cache_read cache_write thinking`. A rate is needed only
            for the kinds of tokens that were used.
    """
    if usage.unknown_attempts:
        return None
    total = Decimal(0)
    for bucket, name in _RATE_OF.items():
        tokens: int = getattr(usage, bucket)
        if not tokens:
            continue
        if name not in rates:
            return None
        total += tokens * Decimal(str(rates[name])) / _MILLION
    return money(total)
