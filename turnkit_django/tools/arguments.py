"""The text a model sends as arguments: read strictly, checked, never repaired or guessed.

Every refusal is a `ToolValidationError` whose message is written for the model, which may try again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any, NoReturn, Protocol

from jsonschema.protocols import Validator
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from turnkit_django.core.content import Json, clean_json, clean_text
from turnkit_django.core.redaction import redact
from turnkit_django.errors import ToolValidationError
from turnkit_django.tools.results import MAX_DEPTH, to_json

_MAX_PROBLEMS = 10
_NAMES: Mapping[type, str] = {dict: "object", list: "list", str: "string", bool: "boolean", type(None): "null"}
_Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class ValidArguments:
    """Arguments that fit a tool.

    Attributes:
        arguments: What to store and to show to a person: JSON, defaults filled in.
        values: What to call the tool with, made from exactly these `arguments`.
    """

    arguments: dict[str, Json]
    values: Mapping[str, object]


class Checker(Protocol):
    """Says whether parsed arguments fit a tool."""

    def check(self, arguments: dict[str, Json]) -> ValidArguments:
        """Raises `ToolValidationError` if they do not."""
        ...


class _Literal(float):
    """A number of which a float cannot hold all digits, with its text."""

    text: str


def parse_arguments(text: str | None) -> dict[str, Json]:
    """The JSON object in `text`; a blank or missing text is an empty one.

    Raises:
        ToolValidationError: If it is not exactly one JSON object, or one that cannot be stored.
    """
    if text is None or not text.strip():
        return {}
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_float=_number, parse_constant=_constant)
        _limit_depth(value)
    except json.JSONDecodeError as error:
        raise _broken(text, error) from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        raise ToolValidationError("the arguments hold an integer with too many digits; send it as a string") from None
    if not isinstance(value, dict):
        kind = _NAMES.get(type(value), "number")
        raise ToolValidationError(f"expected a JSON object with the arguments, got a JSON {kind}")
    return {name: clean_json(item) for name, item in value.items()}


def _broken(text: str, error: json.JSONDecodeError) -> ToolValidationError:
    part = clean_text(text[max(0, error.pos - 40) : error.pos + 20])
    if error.msg == "Extra data":
        return ToolValidationError(
            "the arguments were not valid JSON: expected one JSON object and nothing after it, "
            f"at character {error.pos} of `{part}`; make one call for each object"
        )
    return ToolValidationError(
        f"the arguments were not valid JSON: {error.msg} at character {error.pos} of `{part}`; send one JSON object"
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Cleaned before the comparison: two names must not become equal later, when one of them would win silently.
    found: dict[str, Any] = {}
    for key, value in pairs:
        name = clean_text(key)
        if name in found:
            raise ToolValidationError(f"the name `{name:.60}` appears twice in one JSON object; send it once")
        found[name] = value
    return found


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ToolValidationError(f"the number {text:.40} is out of range")
    if Decimal(text) == Decimal(repr(number)):
        return number
    literal = _Literal(number)
    literal.text = text
    return literal


def _constant(text: str) -> NoReturn:
    raise ToolValidationError(f"the arguments were not valid JSON: {text} is not a JSON value")


def _limit_depth(value: object) -> None:
    layer, level = [value], 0
    while layer:
        level += 1
        if level > MAX_DEPTH:
            raise _too_deep()
        layer = [child for parent in layer for child in _children(parent)]


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _too_deep() -> ToolValidationError:
    return ToolValidationError(f"the arguments are nested deeper than {MAX_DEPTH} levels")


@dataclass(frozen=True, slots=True)
class TypedArguments:
    """Arguments of a signature: `model` has one field for each parameter, known by its alias."""

    model: type[BaseModel]

    def check(self, arguments: dict[str, Json]) -> ValidArguments:
        complete = self._exact(arguments) | self._defaults(arguments)
        problems = self.problems(complete)
        if isinstance(problems, BaseModel):
            values = {str(field.alias): getattr(problems, key) for key, field in self.model.model_fields.items()}
            return ValidArguments(complete, values)
        raise _refusal(problems, known=(name for name, _field in _by_name(self.model)))

    def _defaults(self, arguments: Mapping[str, Json]) -> dict[str, Json]:
        try:
            return {
                name: to_json(field.get_default(call_default_factory=True))
                for name, field in _by_name(self.model)
                if name not in arguments and not field.is_required()
            }
        except Exception as error:  # an application's factory
            raise _unchecked(error) from error

    def problems(self, arguments: dict[str, Json]) -> BaseModel | list[tuple[_Path, str, str]]:
        """The filled model, or what is wrong: place, kind and message. Strict: a text is never read as a number."""
        try:
            return self.model.model_validate_json(json.dumps(arguments), strict=True)
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=False)
            return [(each["loc"], each["type"], _with_input(each["msg"], each["input"])) for each in details]
        except Exception as error:  # an application's validator
            raise _unchecked(error) from error

    def _exact(self, arguments: dict[str, Json]) -> dict[str, Json]:
        """Numbers with more digits than a float holds: as text where a Decimal is wanted, as floats elsewhere."""
        if not any(True for _ in _literals(arguments)):
            return arguments
        # pydantic reads every JSON number as a float first. Only a Decimal complains about a text in this way.
        probe = _replace(arguments, lambda _path, number: f"{number.text}?")
        found = self.problems(probe)
        places = (
            [] if isinstance(found, BaseModel) else [place for place, kind, _ in found if kind == "decimal_parsing"]
        )

        def choose(path: _Path, number: _Literal) -> Json:
            return number.text if any(_leads_to(path, place) for place in places) else float(number)

        return _replace(arguments, choose)


@dataclass(frozen=True, slots=True)
class RawArguments:
    """Arguments of a tool that brought its own JSON Schema; checked against it as it was written.

    Attributes:
        validator: Of the original schema.
        names: The parameters it names.
        reserved: Names that Python cannot pass through `**arguments`.
    """

    validator: Validator
    names: tuple[str, ...] = ()
    reserved: frozenset[str] = frozenset()

    def check(self, arguments: dict[str, Json]) -> ValidArguments:
        arguments = _replace(arguments, lambda _path, number: float(number))
        if taken := sorted(self.reserved & set(arguments)):
            raise ToolValidationError(f"the arguments do not fit: `{taken[0]}` is not a parameter")
        try:
            problems = [
                (tuple(error.absolute_path), str(error.validator), _short(error.message))
                for error in islice(self.validator.iter_errors(arguments), _MAX_PROBLEMS + 1)
            ]
        except Exception as error:  # a pattern or a bound that cannot be applied to this value
            raise _unchecked(error) from error
        if problems:
            raise _refusal(problems, known=self.names)
        return ValidArguments(arguments, dict(arguments))


def _by_name(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    return ((str(field.alias), field) for field in model.model_fields.values())


def _literals(value: Json) -> Iterator[_Literal]:
    if isinstance(value, _Literal):
        yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _literals(child)


def _replace(arguments: dict[str, Json], choose: Callable[[_Path, _Literal], Json]) -> dict[str, Json]:
    def walk(value: Json, path: _Path) -> Json:
        if isinstance(value, dict):
            return {key: walk(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [walk(item, (*path, index)) for index, item in enumerate(value)]
        return choose(path, value) if isinstance(value, _Literal) else value

    return {key: walk(item, (key,)) for key, item in arguments.items()}


def _leads_to(path: _Path, place: _Path) -> bool:
    """Whether pydantic's `place` is at `path`; it may also name members of unions on the way."""
    steps = iter(place)
    return all(step in steps for step in path)


def _refusal(problems: list[tuple[_Path, str, str]], *, known: Iterable[str]) -> ToolValidationError:
    lines = [_line(*problem) for problem in problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        lines.append("and more")
    if any(kind in {"extra_forbidden", "additionalProperties"} for _place, kind, _message in problems):
        lines.append(f"known parameters: {', '.join(f'`{name}`' for name in known) or 'none'}")
    return ToolValidationError(f"the arguments do not fit: {'; '.join(lines)}")


def _line(place: _Path, kind: str, message: str) -> str:
    name = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).lstrip(".")
    name = f"`{clean_text(_short(name, 60))}`"
    match kind:
        case "missing":
            return f"{name} is missing"
        case "extra_forbidden":
            return f"{name} is not a parameter"
        case _:
            return f"{name}: {message}" if place else message


def _with_input(message: str, value: object) -> str:
    try:
        return f"{_short(message)}, got {_short(json.dumps(value, ensure_ascii=False), 60)}"
    except (TypeError, ValueError):
        return _short(message)


def _short(text: str, length: int = 300) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


def _unchecked(error: Exception) -> ToolValidationError:
    text = _short(redact(str(error)))
    return ToolValidationError(f"the arguments could not be checked: {type(error).__name__}: {text}")
