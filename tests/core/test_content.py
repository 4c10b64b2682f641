from __future__ import annotations

from decimal import Decimal

import pytest

from turnkit_django.core.content import (
    Part,
    as_text,
    call_key,
    clean_json,
    clean_text,
    is_storable,
    result_part,
    shown,
    text_of,
    text_part,
)


@pytest.mark.parametrize(
    ("received", "stored"),
    [("a\x00b", "a\ufffdb"), ("\ud83d", "\ufffd"), ("😀 ünï", "😀 ünï"), ("", ""), ("\udfff\x00", "\ufffd\ufffd")],
)
def test_text_that_cannot_be_stored_is_replaced(received: str, stored: str) -> None:
    assert clean_text(received) == stored


def test_json_is_cleaned_at_every_depth() -> None:
    assert clean_json({"a\x00": [("x\x00", 1), None, True, 1.5]}) == {"a\ufffd": [["x\ufffd", 1], None, True, 1.5]}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), Decimal(1), {1: "a"}, {"a": {1, 2}}])
def test_what_json_does_not_know_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        clean_json(value)


def test_call_keys_are_bounded_and_differ_by_call_place_and_iteration() -> None:
    keys = {
        call_key(call_id, iteration=iteration, ordinal=ordinal)
        for call_id in ("", "a", "a" * 5000, "\ud800")
        for iteration in (1, 2)
        for ordinal in (0, 1)
    }
    assert len(keys) == 16
    assert {len(key) for key in keys} == {64}


def test_a_call_key_is_the_same_every_time() -> None:
    assert call_key("a", iteration=1, ordinal=0) == call_key("a", iteration=1, ordinal=0)


def test_a_result_part_holds_what_can_be_stored() -> None:
    assert result_part(call_id="c\x00", key="k", text="t\x00", error=True) == {
        "type": "tool_result",
        "tool_call_id": "c\ufffd",
        "key": "k",
        "text": "t\ufffd",
        "error": True,
    }


def test_the_text_of_a_message_is_its_text_parts() -> None:
    parts: list[Part] = [text_part("a\x00"), {"type": "thinking", "text": "hidden"}, text_part("b")]
    assert text_of(parts) == "a\ufffd\nb"
    assert text_of([]) == ""


@pytest.mark.parametrize(
    ("result", "read"),
    [(None, "null"), ("", '""'), ({"a": [1, "ü"]}, '{"a": [1, "ü"]}'), ([], "[]"), (False, "false")],
)
def test_the_model_never_reads_an_empty_result(result: object, read: str) -> None:
    assert as_text(clean_json(result)) == read


@pytest.mark.parametrize("value", [10**5000, -(10**5000), {"a": [10**5000]}], ids=["int", "negative", "inside"])
def test_a_number_that_python_would_not_read_back_is_no_json(value: object) -> None:
    with pytest.raises(TypeError, match="an int of 16610 bits has too many digits"):
        clean_json(value)


def test_long_numbers_that_can_be_read_back_stay() -> None:
    assert clean_json([10**1000, -(10**1000)]) == [10**1000, -(10**1000)]


def test_a_wrong_value_is_shown_whatever_its_repr_does() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    assert shown("x" * 100) == repr("x" * 100)[:80]
    assert shown(10**5000) == "an int of 16610 bits"
    assert shown(Broken()) == "a Broken that cannot be printed"


def test_text_that_would_change_when_it_is_stored_is_told_apart() -> None:
    assert is_storable("näh 😀\n")
    assert not is_storable("a\x00")
    assert not is_storable("a\ud800")
