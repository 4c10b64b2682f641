"""B67: one call for each kind of result, through a whole turn: asked for, run once, stored, read by the model."""

import asyncio
import contextlib
import gc
import io
import itertools
import json
import math
from collections import namedtuple
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, NoReturn
from uuid import UUID

import pytest
from django.db import connection
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext
from django.utils.functional import lazystr
from pydantic import BaseModel, GetCoreSchemaHandler

from tests.testapp.models import Note
from turnkit_django import Agent, register, tool
from turnkit_django.agents import registry
from turnkit_django.errors import ToolError
from turnkit_django.models import ToolExecution
from turnkit_django.testing import assert_clean, call, drain, text
from turnkit_django.tools import results

pytestmark = pytest.mark.django_db

makes: dict[str, Callable[[], object]] = {}
open_files = contextlib.ExitStack()
ran: list[str] = []


@tool
def make(kind: str) -> object:
    """Return a value of that kind."""
    ran.append(kind)
    return makes[kind]()


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    monkeypatch.setattr(registry, "_agents", dict(registry._agents))
    monkeypatch.setattr(f"{__name__}.makes", {})
    ran.clear()
    with open_files:
        yield register(Agent(name="maker", model="openai/gpt-5-mini", tools=[make]))
    gc.collect()  # whatever a value complains about when it goes is a warning, and an error here


@pytest.fixture
def run(maker: Agent, turnkit_model: Any) -> Callable[[Callable[[], object]], ToolExecution]:
    """Let a worker run a turn whose tool returns what `value` makes; its only execution."""

    def run_one(value: Callable[[], object]) -> ToolExecution:
        makes["it"] = value
        model = turnkit_model([call("make", {"kind": "it"}), text("done it")])
        turn = maker.conversation().submit("make one")
        drain()
        turn.refresh_from_db()
        assert (turn.status, turn.output_text, turn.attempts) == ("completed", "done it", 0), turn.error
        assert ran == ["it"]
        execution = turn.tool_executions.get()
        (told,) = [message["content"] for message in model.requests[1].messages if message["role"] == "tool"]
        wanted = execution.result if execution.error is None else {"error": execution.error["message"]}
        assert exact(told) == exact(json.dumps(wanted))
        assert_clean(model=model)
        return execution

    return run_one


def exact(told: str) -> object:
    """JSON with numbers by value: PostgreSQL writes 1E+3 as 1000."""
    return json.loads(told, parse_float=Decimal, parse_int=Decimal)


class Color(Enum):
    RED = "red"
    OWN = Decimal("1.10")


class Level(IntEnum):
    LOW = 1


@dataclass
class Line:
    sku: str
    price: Decimal
    tags: set[str] = field(default_factory=set)


class Order(BaseModel):
    day: date
    lines: list[Line]


Point = namedtuple("Point", ["x", "y"])


def no(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("not for you")


class HostileText(str):
    __slots__ = ()
    __str__ = __repr__ = __len__ = __iter__ = __format__ = __eq__ = encode = no  # type: ignore[assignment]
    __hash__ = str.__hash__


class HostileInt(int):
    __str__ = __repr__ = __int__ = __index__ = __format__ = __eq__ = bit_length = no  # type: ignore[assignment]
    __hash__ = int.__hash__


class HostileFloat(float):
    __str__ = __repr__ = __float__ = __eq__ = __ne__ = __gt__ = no  # type: ignore[assignment]
    __hash__ = float.__hash__


class HostileDict(dict):  # type: ignore[type-arg]
    items = keys = __iter__ = __len__ = __getitem__ = no  # type: ignore[assignment]


BIG = 7 * 10**399
AWARE = datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC)

STORED: dict[str, tuple[Callable[[], object], object]] = {
    "aware datetime": (lambda: AWARE, {"result": "2026-01-02T03:04:05.000600Z"}),
    "datetime of another zone": (
        lambda: AWARE.astimezone(timezone(timedelta(hours=5, minutes=30))),
        {"result": "2026-01-02T08:34:05.000600+05:30"},
    ),
    "naive datetime": (lambda: AWARE.replace(tzinfo=None), {"result": "2026-01-02T03:04:05.000600"}),
    "date": (lambda: date(2026, 1, 2), {"result": "2026-01-02"}),
    "time": (lambda: time(3, 4, 5), {"result": "03:04:05"}),
    "timedelta": (lambda: timedelta(days=1, seconds=2), {"result": "P1DT2S"}),
    "Decimal": (lambda: Decimal("1.10"), {"result": "1.10"}),
    "huge Decimal": (lambda: Decimal(f"{BIG}.{BIG}"), {"result": f"{BIG}.{BIG}"}),
    "Decimal with an exponent": (lambda: Decimal("1E+1000000"), {"result": "1E+1000000"}),
    "Decimal NaN": (lambda: Decimal("NaN"), {"result": "NaN"}),
    "signalling Decimal": (lambda: Decimal("sNaN"), {"result": "sNaN"}),
    "Decimal Infinity": (lambda: Decimal("-Infinity"), {"result": "-Infinity"}),
    "int of 400 digits": (lambda: BIG, {"result": BIG}),
    "negative int of 400 digits": (lambda: {"n": [-BIG]}, {"n": [-BIG]}),
    "UUID": (lambda: UUID(int=1), {"result": "00000000-0000-0000-0000-000000000001"}),
    "set": (lambda: {3, 1, 2}, {"items": [1, 2, 3]}),
    "frozenset": (lambda: frozenset("ba"), {"items": ["a", "b"]}),
    "bytes": (lambda: b"\xff", {"result": "/w=="}),
    "memoryview": (lambda: memoryview(b"text"), {"result": "text"}),
    "memoryview with steps": (lambda: memoryview(b"abcd")[::2], {"result": "ac"}),
    "NaN": (lambda: float("nan"), {"result": "NaN"}),
    "infinities": (lambda: [math.inf, -math.inf], {"items": ["Infinity", "-Infinity"]}),
    "negative zero": (lambda: -0.0, {"result": 0.0}),
    "smallest float": (lambda: 5e-324, {"result": 5e-324}),
    "largest float": (lambda: 1.7976931348623157e308, {"result": 17976931348623157 * 10**292}),
    "Enum": (lambda: [Color.RED, Color.OWN], {"items": ["red", "1.10"]}),
    "IntEnum": (lambda: Level.LOW, {"result": 1}),
    "dataclass": (lambda: Line("a", Decimal("2.50"), {"x"}), {"sku": "a", "price": "2.50", "tags": ["x"]}),
    "pydantic model": (
        lambda: Order(day=date(2026, 1, 2), lines=[Line("a", Decimal("1.10"))]),
        {"day": "2026-01-02", "lines": [{"sku": "a", "price": "1.10", "tags": []}]},
    ),
    "namedtuple": (lambda: Point(1, Decimal("2.0")), {"items": [1, "2.0"]}),
    "dict with other keys": (lambda: {1: "a", (1, 2): "b"}, {"1": "a", "1,2": "b"}),
    "lazy translation": (lambda: lazystr("later"), {"result": "later"}),
    "short generator": (lambda: (n for n in range(3)), {"items": [0, 1, 2]}),
    "iterator": (lambda: iter(["a", "b"]), {"items": ["a", "b"]}),
    "text of ten million characters": (lambda: "x" * 10_485_760, {"result": "x" * 10_485_760}),
    "NUL and lone surrogates": (lambda: {"a\x00": "b\ud800\udfff"}, {"a\ufffd": "b\ufffd\ufffd"}),
    "what only looks like an escape": (lambda: "\\u0000 \\ud800", {"result": "\\u0000 \\ud800"}),
    "hostile text": (lambda: HostileText("mine"), {"result": "mine"}),
    "hostile int": (lambda: HostileInt(7), {"result": 7}),
    "hostile float": (lambda: HostileFloat(0.5), {"result": 0.5}),
    "hostile key": (lambda: {HostileText("k"): HostileText("v")}, {"k": "v"}),
    "nothing": (lambda: None, {"result": None}),
    "empty text": (lambda: "", {"result": ""}),
}


@pytest.mark.parametrize("kind", STORED)
def test_a_result_is_stored_as_documented_and_read_by_the_model(run: Any, kind: str):
    value, expected = STORED[kind]

    execution = run(value)

    assert (execution.status, execution.error) == ("completed", None)
    assert execution.result == expected


class Unprintable:
    __str__ = __repr__ = no


class Schemaless:
    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> NoReturn:
        raise RuntimeError("no schema")


class Liar:
    __class__ = property(no)  # type: ignore[assignment]


class Exiting:
    def __iter__(self) -> Iterator[object]:
        raise SystemExit(0)


class BrokenModel(BaseModel):
    n: int = 0

    def model_dump(self, **_: Any) -> NoReturn:
        raise KeyError("n")


def circular() -> object:
    own: list[object] = [1]
    own.append({"again": own})
    return own


def deep() -> object:
    value: object = 1
    for _ in range(10_000):
        value = [value]
    return value


def broken_generator() -> Iterator[int]:
    yield 1
    raise LookupError("the second is gone")


async def unasked() -> None:
    await asyncio.sleep(0)


async def many() -> AsyncIterator[int]:
    yield 1


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "object": (object, "it holds a object, which is not JSON"),
    "exception": (lambda: ValueError("x"), "it holds the exception ValueError; raise it instead"),
    "unsaved row": (lambda: Note(name="n"), "it holds a Note row; return a dict"),
    "saved row": (lambda: Note.objects.create(name="n"), "it holds a Note row; return a dict"),
    "class": (lambda: Note, "it holds a ModelBase"),
    "unprintable object": (Unprintable, "it holds a Unprintable"),
    "unprintable key": (lambda: {Unprintable(): 1}, "a key is a Unprintable"),
    "model without a schema": (Schemaless, "it holds a Schemaless"),
    "object that lies about its class": (lambda: [Liar()], "reading it raised RuntimeError"),
    "broken pydantic model": (BrokenModel, "reading it raised KeyError"),
    "hostile dict": (lambda: HostileDict(a=1), "reading it raised RuntimeError"),
    "endless file": (
        lambda: open_files.enter_context(open("/dev/zero", "rb")),  # noqa: SIM115  closed after the test
        "it holds the open file BufferedReader",
    ),
    "file in memory": (lambda: io.StringIO("a\nb"), "it holds the open file StringIO"),
    "circle": (circular, "nested deeper than 100 levels, or holds itself"),
    "10,000 levels": (deep, "nested deeper than 100 levels, or holds itself"),
    "int of 5,000 digits": (lambda: 10**5000, "an integer in it has more than 4,000 digits"),
    "equal keys": (lambda: {1: "a", "1": "b"}, "two of its keys become the same text `1`"),
    "generator that fails": (broken_generator, "reading it raised LookupError"),
    "lambda": (lambda: no, "it holds a function"),
    "coroutine in a list": (lambda: [unasked(), {"a": unasked()}], "it holds a coroutine"),
    "async generator": (lambda: many(), "it holds a async_generator"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_stored_is_a_failed_call_that_says_so(run: Any, kind: str):
    value, message = REFUSED[kind]

    execution = run(value)

    assert (execution.status, execution.result) == ("failed", None)
    assert execution.error["type"] == "ToolError"
    assert execution.error["message"].startswith("the tool ran, but its result could not be stored: ")
    assert message in execution.error["message"]


@pytest.mark.parametrize("kind", [GeneratorExit, asyncio.CancelledError, MemoryError, StopAsyncIteration])
def test_reading_a_result_may_raise_anything(run: Any, kind: type[BaseException]):
    def values() -> Iterator[int]:
        yield 1
        raise kind

    execution = run(values)

    assert (execution.status, execution.error["type"]) == ("failed", "ToolError")
    assert f"reading it raised {kind.__name__}" in execution.error["message"]


def test_reading_a_result_may_end_the_process_as_little_as_the_tool_itself(run: Any):
    execution = run(lambda: map(exit, ["x"]))

    assert (execution.status, execution.error["message"]) == ("failed", "SystemExit: x")


def test_texts_of_an_endless_generator_are_read_up_to_a_bound_too(run: Any):
    pulled = itertools.count()

    execution = run(lambda: ("x" * 1_000_000 for _ in pulled))

    assert "longer than 20,000,000 characters" in execution.error["message"]
    assert next(pulled) == 21


def test_a_coroutine_that_a_tool_forgot_to_await_is_awaited(run: Any):
    async def answer() -> dict[str, int]:
        return {"n": 1}

    assert run(answer).result == {"n": 1}


def test_an_endless_generator_is_read_up_to_the_bound(run: Any):
    pulled = itertools.count()

    execution = run(lambda: ({"n": n} for n in pulled))

    assert [len(execution.result["items"]), execution.result["items"][-1]] == [1000, {"n": 999}]
    assert "only the first 1,000 items are here" in execution.result["truncated"]
    assert next(pulled) == 1001


def test_of_5000_rows_no_more_than_the_bound_is_fetched(run: Any):
    Note.objects.bulk_create(Note(name=f"n{number}") for number in range(5000))
    rows = Note.objects.order_by("pk").values("name")

    with CaptureQueriesContext(connection) as queries:
        execution = run(lambda: rows)

    assert len(execution.result["items"]) == 1000
    asked = [each["sql"] for each in queries.captured_queries if "testapp_note" in each["sql"]]
    assert len(asked) == 1
    assert asked[0].endswith("LIMIT 1001")


def test_of_5000_instances_one_is_looked_at(run: Any):
    Note.objects.bulk_create(Note(name=f"n{number}") for number in range(5000))
    rows: QuerySet[Note] = Note.objects.all()

    with CaptureQueriesContext(connection) as queries:
        execution = run(lambda: rows)

    assert "it holds a Note row" in execution.error["message"]
    asked = [each["sql"] for each in queries.captured_queries if "testapp_note" in each["sql"]]
    assert [sql.rpartition(" ")[2] for sql in asked] == ["1001"]


@pytest.mark.parametrize("value", [lambda: "x" * (results.MAX_CHARACTERS + 1), lambda: ["x" * 1000] * 30_000])
def test_a_result_that_the_database_could_not_hold_is_refused_before_it_is_sent(run: Any, value: Any):
    execution = run(value)

    assert "longer than 20,000,000 characters" in execution.error["message"]


def test_the_words_of_a_tool_error_may_be_endless(run: Any):
    def complain() -> None:
        raise ToolError("no " * 4_000_000)

    execution = run(complain)

    assert (execution.status, execution.error["message"]) == ("failed", ("no " * 334)[:1000])
