import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from ipaddress import ip_network
from itertools import count
from numbers import Integral, Real
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.utils.functional import lazystr
from django.utils.safestring import mark_safe
from pydantic import BaseModel

from turnkit_django.errors import ToolError
from turnkit_django.tools import normalize_result


class Color(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


@dataclass
class Line:
    sku: str
    price: Decimal


class Order(BaseModel):
    day: date
    lines: list[Line]


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class NumpyLike:
    """As a numpy scalar: no dimensions, and a list of them is the plain value."""

    shape = ()

    def __init__(self, value: object) -> None:
        self.value = value

    def tolist(self) -> object:
        return self.value


@Integral.register
class OtherInt:
    def __int__(self) -> int:
        return 7


@Real.register
class OtherFloat:
    def __float__(self) -> float:
        return 0.5


BIG = 10**4000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1}, {"a": 1}),
        ({}, {}),
        ({"error": "no"}, {"error": "no"}),
        (MappingProxyType({"a": (1, 2)}), {"a": [1, 2]}),
        ([], {"items": []}),
        ([1, "a"], {"items": [1, "a"]}),
        ((1, 2), {"items": [1, 2]}),
        ({"b", "a"}, {"items": ["a", "b"]}),
        (frozenset({1}), {"items": [1]}),
        (deque([1]), {"items": [1]}),
        ({"a": 1}.values(), {"items": [1]}),
        (None, {"result": None}),
        ("", {"result": ""}),
        ("text", {"result": "text"}),
        (mark_safe("<b>"), {"result": "<b>"}),
        (True, {"result": True}),
        (BIG, {"result": BIG}),
        (1.5, {"result": 1.5}),
        (float("nan"), {"result": "NaN"}),
        (float("inf"), {"result": "Infinity"}),
        (float("-inf"), {"result": "-Infinity"}),
        (Decimal("1.10"), {"result": "1.10"}),
        (Decimal("NaN"), {"result": "NaN"}),
        (Fraction(1, 3), {"result": "1/3"}),
        (datetime(2026, 1, 2, 3, 4, tzinfo=UTC), {"result": "2026-01-02T03:04:00Z"}),
        (date(2026, 1, 2), {"result": "2026-01-02"}),
        (timedelta(hours=1), {"result": "PT1H"}),
        (UUID(int=1), {"result": "00000000-0000-0000-0000-000000000001"}),
        (PurePosixPath("/a"), {"result": "/a"}),
        (ip_network("10.0.0.0/8"), {"result": "10.0.0.0/8"}),
        (Color.RED, {"result": "red"}),
        (Level.LOW, {"result": 1}),
        (b"text", {"result": "text"}),
        (bytearray(b"text"), {"result": "text"}),
        (b"\xff", {"result": "/w=="}),
        (lazystr("later"), {"result": "later"}),
        (Line("a", Decimal("2.50")), {"sku": "a", "price": "2.50"}),
        (
            Order(day=date(2026, 1, 2), lines=[Line("a", Decimal(1))]),
            {"day": "2026-01-02", "lines": [{"sku": "a", "price": "1"}]},
        ),
        (NumpyLike(3), {"result": 3}),
        (OtherInt(), {"result": 7}),
        (OtherFloat(), {"result": 0.5}),
        (NumpyLike(float("nan")), {"result": "NaN"}),
        ("a\x00b\ud800", {"result": "a\ufffdb\ufffd"}),
        ({"k\x00": ["v\x00"]}, {"k\ufffd": ["v\ufffd"]}),
        ({1: "a", (1, 2): "b", None: "c", True + 1: "d"}, {"1": "a", "1,2": "b", "null": "c", "2": "d"}),
        ({False: 1, Color.RED: 2, date(2026, 1, 2): 3, 1.5: 4}, {"false": 1, "red": 2, "2026-01-02": 3, "1.5": 4}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_result_becomes_a_json_object(value: object, expected: dict[str, object]):
    found = normalize_result(value)

    assert found == expected
    json.dumps(found, allow_nan=False).encode()


def test_subclasses_of_plain_types_become_plain():
    found: Any = normalize_result([mark_safe("x"), Level.LOW])["items"]

    assert [type(item) for item in found] == [str, int]


def test_a_set_that_cannot_be_sorted_is_kept():
    found: Any = normalize_result({1, "a"})["items"]

    assert set(found) == {1, "a"}


def circular() -> list[object]:
    own: list[object] = []
    own.append(own)
    return own


def deep() -> object:
    value: object = 1
    for _ in range(5000):
        value = [value]
    return value


async def coroutine() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "it holds a object, which is not JSON"),
        ([Unprintable()], "it holds a Unprintable"),
        ({Unprintable(): 1}, "a key is a Unprintable"),
        (Exception("no"), "it holds the exception Exception; raise it instead of returning it"),
        (int, "it holds a type"),
        (User(username="ada"), "it holds a User row; return a dict"),
        ({1: "a", "1": "b"}, "two of its keys become the same text `1`"),
        ({"a\x00": 1, "a\ufffd": 2}, "two of its keys become the same text"),
        (circular(), "nested deeper than 100 levels"),
        (deep(), "nested deeper than 100 levels"),
        (10**5000, "an integer in it has more than 4,000 digits"),
        (coroutine(), "it holds a async_generator"),
        (map(int, ["x"]), "reading it raised ValueError"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_hold_is_said_without_touching_the_value(value: object, message: str):
    with pytest.raises(ToolError) as caught:
        normalize_result(value)

    assert str(caught.value).startswith("the tool ran, but its result could not be stored: ")
    assert message in str(caught.value)


def test_a_tool_error_from_inside_a_generator_is_the_tools_own_word():
    def rows() -> Iterator[int]:
        yield 1
        raise ToolError("no such order")

    with pytest.raises(ToolError, match=r"^no such order$"):
        normalize_result(rows())


def test_a_short_generator_is_read_whole():
    assert normalize_result(number for number in range(3)) == {"items": [0, 1, 2]}


def test_an_endless_iterable_is_read_up_to_the_bound_and_the_result_says_so():
    pulled = count()

    found: Any = normalize_result(pulled)

    assert found["items"] == list(range(1000))
    assert found["truncated"] == "only the first 1,000 items are here; the rest was not read"
    assert next(pulled) == 1001


def test_a_list_is_kept_whole():
    assert normalize_result([0] * 5000) == {"items": [0] * 5000}
    assert "truncated" in normalize_result(range(5000))


def test_endless_iterables_inside_iterables_share_one_bound():
    pulled = 0

    def endless(level: int) -> Iterator[object]:
        nonlocal pulled
        while True:
            pulled += 1
            yield endless(level - 1) if level else pulled

    normalize_result({"rows": endless(5)})

    assert pulled < 12_000


@pytest.mark.django_db
def test_a_queryset_is_never_fetched_beyond_the_bound(django_assert_num_queries: Any):
    User.objects.bulk_create(User(username=f"u{number}") for number in range(1005))
    rows = User.objects.order_by("id").values("username")

    with django_assert_num_queries(1) as queries:
        found: Any = normalize_result(rows)

    assert "LIMIT 1001" in queries.captured_queries[0]["sql"]
    assert (len(found["items"]), found["items"][0]) == (1000, {"username": "u0"})
    assert "truncated" in found


@pytest.mark.django_db
def test_querysets_of_rows_raw_querysets_and_managers_say_what_to_return_instead():
    User.objects.create(username="ada")
    for value in (User.objects.all(), User.objects.raw("SELECT * FROM auth_user"), {"rows": User.objects.all()}):
        with pytest.raises(ToolError, match="it holds a User row; return a dict"):
            normalize_result(value)
    with pytest.raises(ToolError, match="UserManager"):
        normalize_result(User.objects)


@pytest.mark.django_db
def test_a_sliced_queryset_works():
    User.objects.create(username="ada")
    rows: QuerySet[User, Any] = User.objects.values_list("username", flat=True)[:5]

    assert normalize_result(rows) == {"items": ["ada"]}
