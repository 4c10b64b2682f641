"""What a tool returned, as JSON that can be stored and read by a model.

| returned | stored |
| --- | --- |
| a mapping, a dataclass, a pydantic model | an object; keys become text |
| a list, tuple, set or other iterable | `{"items": [...]}` |
| anything else, None too | `{"result": value}` |

Values: `Decimal`, dates, UUIDs and paths become text, an enum its value, bytes their UTF-8 text or else base64, NaN and
infinities the texts "NaN", "Infinity" and "-Infinity". Lists, tuples and sets are kept whole; any other iterable may be
endless or a table of a million rows, so only its first 1,000 items are read, and the result says so. Files are not read
at all, and a result of more than 20 million characters is refused.
"""

from __future__ import annotations

import base64
import inspect
import math
import sys
from asyncio import CancelledError
from collections import deque
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from io import IOBase
from ipaddress import IPv4Network, IPv6Network
from itertools import islice
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any, cast

from django.utils.functional import Promise
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from turnkit_django.core.content import Json, clean_text
from turnkit_django.errors import ToolError

MAX_ITEMS = 1_000
"""Most items read of one iterable that is not a list, tuple or set."""
MAX_ITEMS_IN_ALL = 10_000
"""Most such items in one result: iterables may hold iterables."""
MAX_CHARACTERS = 20_000_000
"""Longest result, about: PostgreSQL holds no JSON value of more than 256 MB, and a character may take 12 bytes."""
MAX_DEPTH = 100
"""Deepest nesting of a stored value."""

_MAX_INT_BITS = 14_000  # Python refuses to write an integer of more than 4,300 digits
_WHOLE = (list, tuple, set, frozenset, deque, KeysView, ValuesView, ItemsView)


def normalize_result(value: object) -> dict[str, Json]:
    """The result of a tool as a JSON object.

    Raises:
        ToolError: If it holds something that JSON cannot. The body has run: its effect stays.
    """
    json = to_json(value)
    if isinstance(json, dict):
        return json
    return {"items": json} if isinstance(json, list) else {"result": json}


def to_json(value: object) -> Json:
    """`value` as JSON.

    Raises:
        ToolError: As `normalize_result`.
    """
    reader = _Reader()
    try:
        json = reader.read(value, depth=0)
    except ToolError:
        raise
    except (Exception, CancelledError, GeneratorExit) as error:  # a generator, query or property of the application
        raise _unstorable(f"reading it raised {type(error).__name__}") from error
    if reader.has_coroutine:
        raise _unstorable("it holds a coroutine; await it in the tool")
    return json


def _unstorable(reason: str) -> ToolError:
    return ToolError(f"the tool ran, but its result could not be stored: {reason}")


@dataclass(slots=True)
class _Reader:
    """Turns one value into JSON; counts what it pulled out of iterables, and how long the JSON grows."""

    left: int = MAX_ITEMS_IN_ALL
    room: int = MAX_CHARACTERS
    has_coroutine: bool = False

    def read(self, value: object, *, depth: int) -> Json:
        if depth > MAX_DEPTH:
            raise _unstorable(f"it is nested deeper than {MAX_DEPTH} levels, or holds itself")
        if inspect.iscoroutine(value):
            # Reading goes on to the others, which would all complain that nobody awaited them.
            value.close()
            self.has_coroutine = True
            return None
        if isinstance(value, Enum):
            return self.read(value.value, depth=depth + 1)
        if value is None or isinstance(value, bool | str | int | float | bytes | bytearray | memoryview | Promise):
            return self._fitting(_scalar(value))
        if isinstance(value, BaseModel):
            return self.read(value.model_dump(warnings=False), depth=depth + 1)
        if is_dataclass(value) and not isinstance(value, type):
            return self.read({field.name: getattr(value, field.name) for field in fields(value)}, depth=depth + 1)
        return self._read_collection(value, depth=depth)

    def _fitting(self, json: Json) -> Json:
        self.room -= len(json) if isinstance(json, str) else _width(json)
        if self.room < 0:
            raise _unstorable(f"it is longer than {MAX_CHARACTERS:,} characters")
        return json

    def _read_collection(self, value: object, *, depth: int) -> Json:
        if isinstance(value, Mapping):
            return self._read_mapping(value, depth=depth)
        if isinstance(value, _WHOLE):
            return [self.read(item, depth=depth + 1) for item in _ordered(value)]
        known, json = _foreign(value)
        if known:
            return self._fitting(json)
        if isinstance(value, Iterable) and not isinstance(value, type | IOBase):
            return self._read_some(value, depth=depth)
        raise _unstorable(_advice(value))

    def _read_mapping(self, value: Mapping[Any, object], *, depth: int) -> Json:
        json: dict[str, Json] = {}
        for key, item in value.items():
            text = str(self._fitting(_key(key)))
            if text in json:
                raise _unstorable(f"two of its keys become the same text `{text:.60}`")
            json[text] = self.read(item, depth=depth + 1)
        return json

    def _read_some(self, value: Iterable[object], *, depth: int) -> Json:
        items: list[Json] = []
        for item in _first(value, MAX_ITEMS + 1):
            if len(items) == MAX_ITEMS or self.left <= 0:
                note = f"only the first {len(items):,} items are here; the rest was not read"
                return {"items": items, "truncated": note}
            self.left -= 1
            items.append(self.read(item, depth=depth + 1))
        return items


def _scalar(value: object) -> Json:
    match value:
        case None | bool():
            return value
        case str():
            return clean_text(str.__str__(value))
        case int():
            return _integer(value)
        case float():
            return _float(float.__float__(value))
        case bytes() | bytearray() | memoryview():
            return _text_of_bytes(bytes(value))
        case _:
            return clean_text(str.__str__(str(value)))  # a lazy translation


def _width(json: Json) -> int:
    """About how many characters a number or a word of JSON takes."""
    return json.bit_length() // 3 if isinstance(json, int) else 8


def _integer(value: int) -> int:
    number = int.__int__(value)
    if number.bit_length() > _MAX_INT_BITS:
        raise _unstorable("an integer in it has more than 4,000 digits")
    return number


def _float(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _text_of_bytes(value: bytes) -> str:
    try:
        return clean_text(value.decode())
    except UnicodeDecodeError:
        return base64.b64encode(value).decode("ascii")


def _key(key: object) -> str:
    """The text of a mapping's key; JSON's own words for true, false and null."""
    if isinstance(key, Enum):
        return _key(key.value)
    if isinstance(key, tuple):
        return ",".join(_key(part) for part in key)
    if key is None or isinstance(key, bool):
        return "null" if key is None else str(key).lower()
    known, json = (True, _scalar(key)) if isinstance(key, str | int | float | bytes | Promise) else _foreign(key)
    if not known or isinstance(json, dict | list):
        raise _unstorable(f"a key is a {type(key).__name__}, which has no text")
    return str(json)


def _ordered(value: Iterable[object]) -> Iterable[object]:
    """The items; those of a set sorted where they can be, so that equal sets give equal results."""
    if not isinstance(value, set | frozenset):
        return value
    try:
        return sorted(cast("set[Any]", value))
    except TypeError:
        return value


def _foreign(value: Any) -> tuple[bool, Json]:
    """Numbers of other libraries, then what pydantic knows: Decimal, dates, UUID, paths, addresses, patterns."""
    if getattr(value, "shape", None) == () and hasattr(value, "tolist"):  # a numpy scalar
        value = value.tolist()
        return True, _scalar(value)
    if isinstance(value, PurePath):
        return True, clean_text(str(value))
    if isinstance(value, Integral):
        return True, _integer(int(value))
    if isinstance(value, Real) and not isinstance(value, Fraction):
        return True, _float(float(value))
    if isinstance(value, Iterable) and not isinstance(value, IPv4Network | IPv6Network):
        return False, None  # pydantic would read a generator to its end
    try:
        json = to_jsonable_python(value, inf_nan_mode="strings")
    except Exception:  # raised by pydantic, or by the value's own methods
        return False, None
    return True, clean_text(json) if isinstance(json, str) else json


def _first(value: Iterable[object], count: int) -> Iterator[object]:
    """At most `count` items. A queryset is sliced: iterating it would fetch every row."""
    query = sys.modules.get("django.db.models.query")
    if query is not None and isinstance(value, query.QuerySet):
        return iter(value[:count])
    if query is not None and isinstance(value, query.RawQuerySet):
        return islice(value.iterator(), count)
    return islice(value, count)


def _advice(value: object) -> str:
    kind = type(value)
    if isinstance(value, BaseException):
        return f"it holds the exception {kind.__name__}; raise it instead of returning it"
    if isinstance(value, IOBase):
        return f"it holds the open file {kind.__name__}; return what the model should read of it"
    if hasattr(kind, "_meta"):
        return f"it holds a {kind.__name__} row; return a dict with the fields that the model should see"
    return f"it holds a {kind.__name__}, which is not JSON; return text, numbers, lists and dicts"
