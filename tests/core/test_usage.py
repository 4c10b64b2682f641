from __future__ import annotations

from turnkit_django.core.usage import Usage

FULL = Usage(
    input_tokens=1,
    output_tokens=2,
    cached_tokens=4,
    cache_write_tokens=8,
    thinking_tokens=16,
    unknown_attempts=1,
)


def test_the_total_is_the_sum_of_the_five_buckets() -> None:
    assert FULL.total_tokens == 31


def test_usages_add_field_by_field() -> None:
    assert sum([FULL, FULL], Usage()) == Usage(2, 4, 8, 16, 32, 2)
    assert sum([FULL, Usage(input_tokens=1)], Usage()).input_tokens == 2


def test_the_dictionary_holds_every_field_and_the_total() -> None:
    assert FULL.as_dict() == {
        "input_tokens": 1,
        "output_tokens": 2,
        "cached_tokens": 4,
        "cache_write_tokens": 8,
        "thinking_tokens": 16,
        "unknown_attempts": 1,
        "total_tokens": 31,
    }
