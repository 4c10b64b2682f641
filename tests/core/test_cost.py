from __future__ import annotations

from decimal import Decimal

import pytest

from turnkit_django.core.cost import Rate, cost_of, money
from turnkit_django.core.usage import Usage

RATES: dict[str, Rate] = {"input": "3", "output": 15, "cache_read": 0.3, "cache_write": Decimal("3.75"), "thinking": 15}


def test_every_kind_of_token_has_its_own_price() -> None:
    usage = Usage(
        input_tokens=1_000_000,
        output_tokens=100_000,
        cached_tokens=10_000,
        cache_write_tokens=1_000,
        thinking_tokens=100,
    )
    assert cost_of(usage, rates=RATES) == Decimal("3") + Decimal("1.5") + Decimal("0.003") + Decimal("0.00375") + (
        Decimal("0.0015")
    )


def test_no_tokens_cost_nothing_even_without_rates() -> None:
    assert cost_of(Usage(), rates={}) == 0


@pytest.mark.parametrize(
    ("bucket", "rate"),
    [
        ("input_tokens", "input"),
        ("output_tokens", "output"),
        ("cached_tokens", "cache_read"),
        ("cache_write_tokens", "cache_write"),
        ("thinking_tokens", "thinking"),
    ],
)
def test_tokens_without_a_rate_make_the_cost_unknown(bucket: str, rate: str) -> None:
    rates = {name: value for name, value in RATES.items() if name != rate}
    assert cost_of(Usage(**{bucket: 1}), rates=rates) is None
    assert cost_of(Usage(**{bucket: 1}), rates={rate: 2}) == Decimal("0.000002")


def test_a_rate_of_zero_is_a_price() -> None:
    assert cost_of(Usage(input_tokens=5), rates={"input": 0}) == 0


def test_a_call_that_was_never_heard_of_makes_the_cost_unknown() -> None:
    assert cost_of(Usage(input_tokens=1, unknown_attempts=1), rates=RATES) is None


def test_a_float_means_what_it_prints() -> None:
    assert str(money(6.500000000000001e-05)) == "0.000065000000"
    assert money("0.1") == money(0.1) == Decimal("0.1")
