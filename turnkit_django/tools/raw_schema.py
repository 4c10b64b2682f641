"""A tool's own JSON Schema: arguments are checked against it as written; providers get a form that they accept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import cast
from urllib.parse import unquote

from jsonschema.exceptions import best_match
from jsonschema.validators import Draft202012Validator, validator_for

from turnkit_django.core.content import Json, clean_json
from turnkit_django.errors import ConfigError
from turnkit_django.tools.arguments import Checker, RawArguments

Schema = dict[str, Json]

# Under these keys stands data, or a mapping of names to schemas, rather than a schema.
DATA_KEYS = frozenset({"default", "const", "enum", "examples", "required", "type"})
NAMED_KEYS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})

_REFERENCE_KEYS = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_UNIONS = ("oneOf", "anyOf", "allOf")
# Providers refuse these at the top, even though arguments are always one object.
_DROPPED = frozenset({"$schema", "$id", "$comment", "$ref", "title", "not", "if", "then", "else", "enum", "const"})


def read_raw_schema(raw: Mapping[str, object], *, reserved: frozenset[str], where: str) -> tuple[Schema, Checker]:
    """The schema for the model, and the check against `raw`.

    Raises:
        ConfigError: `raw` is no valid JSON Schema of an object, or a reference in it leads nowhere.
    """
    original = _read(raw, where=where)
    kind = validator_for(original, default=Draft202012Validator)
    # `check_schema` would miss a pattern that is no regular expression: formats are checked only when asked for.
    meta = kind(kind.META_SCHEMA, format_checker=kind.FORMAT_CHECKER)
    if (error := best_match(meta.iter_errors(original))) is not None:
        place = "/".join(str(step) for step in error.absolute_path) or "the top"
        raise ConfigError(
            f"{where}: expected a valid JSON Schema in `parameters`, got at {place}: {error.message:.200}"
        )
    _check_references(original, where=where)
    schema = _for_providers(original, where=where)
    _check_references(schema, where=where)
    if taken := sorted(reserved & set(_properties(schema))):
        raise ConfigError(f"{where}: expected parameters other than the reserved `{taken[0]}`; rename it in the schema")
    return schema, RawArguments(kind(original), tuple(_properties(schema)), reserved)


def _read(raw: object, *, where: str) -> Schema:
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{where}: expected a dict in `parameters`, got {type(raw).__name__}")
    try:
        return cast("Schema", clean_json(raw))
    except (TypeError, RecursionError) as error:
        raise ConfigError(f"{where}: expected a JSON Schema in `parameters`, got: {error}") from error


def _for_providers(original: Schema, *, where: str) -> Schema:
    kinds = original.get("type", "object")
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        raise ConfigError(f"{where}: expected a schema of type object in `parameters`, got type `{kinds}`")
    merged = _merged(original, root=original, depth=0)
    schema = {key: value for key, value in merged.items() if key not in _DROPPED and key not in _UNIONS}
    properties = dict(_properties(schema))
    # Some providers refuse a required name that has no property.
    properties |= {name: {} for name in _required(schema) if name not in properties}
    schema |= {"type": "object", "properties": cast("Json", properties)}
    if schema.get("additionalProperties") == {}:
        schema["additionalProperties"] = True
    return cast("Schema", _with_new_definitions(schema))


def _merged(schema: Schema, *, root: Schema, depth: int) -> Schema:
    """One object for what references and unions at the top allow: wider than the original, which stays the judge."""
    if depth > 20:  # a reference to itself
        return {}
    merged = dict(schema)
    if isinstance(reference := schema.get("$ref"), str):
        found, target = _resolve(reference, root)
        if found and isinstance(target, dict):
            merged = _joined(_merged(target, root=root, depth=depth + 1), merged)
    for union in _UNIONS:
        branches = [each for each in _listed(schema.get(union)) if isinstance(each, dict)]
        if not branches:
            continue
        parts = [_merged(each, root=root, depth=depth + 1) for each in branches]
        either = reduce(_joined, parts) if union == "allOf" else reduce(_either, parts)
        merged = _joined(either, merged)
    return merged


def _joined(first: Schema, second: Schema) -> Schema:
    """Both hold; the second's words win."""
    required = [*_required(first), *(name for name in _required(second) if name not in _required(first))]
    return _combined(first, second, required=required)


def _either(first: Schema, second: Schema) -> Schema:
    """One of them holds: only what both require is required."""
    joined = _combined(first, second, required=[name for name in _required(first) if name in _required(second)])
    # A branch that forbids other names would forbid those of its sisters.
    joined.pop("additionalProperties", None)
    both = _properties(first).keys() & _properties(second).keys()
    properties = dict(_properties(joined))
    for name in both:
        one, other = _properties(first)[name], _properties(second)[name]
        if one != other:
            properties[name] = {"anyOf": [one, other]}
    return {**joined, "properties": cast("Json", properties)}


def _combined(first: Schema, second: Schema, *, required: list[str]) -> Schema:
    combined: Schema = {**first, **second, "properties": cast("Json", {**_properties(first), **_properties(second)})}
    combined.pop("required", None)
    return {**combined, "required": cast("Json", required)} if required else combined


def _properties(schema: Schema) -> dict[str, Json]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _required(schema: Schema) -> list[str]:
    return [str(name) for name in _listed(schema.get("required"))]


def _listed(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _with_new_definitions(schema: Schema) -> Json:
    """`definitions`, the old place, becomes `$defs`: some conversions on the way know only the new one."""
    old = schema.pop("definitions", None)
    if not isinstance(old, dict):
        return schema
    kept = schema.get("$defs")
    schema["$defs"] = {**old, **(kept if isinstance(kept, dict) else {})}
    return _moved(schema)


def _moved(value: Json) -> Json:
    if isinstance(value, list):
        return [_moved(item) for item in value]
    if not isinstance(value, dict):
        return value
    moved: Schema = {}
    for key, item in value.items():
        if key == "$ref" and isinstance(item, str) and item.startswith("#/definitions/"):
            moved[key] = f"#/$defs/{item.removeprefix('#/definitions/')}"
        else:
            moved[key] = item if key in DATA_KEYS and not isinstance(item, dict) else _moved(item)
    return moved


def _check_references(schema: Schema, *, where: str) -> None:
    for reference in _references(schema):
        found, _target = _resolve(reference, schema)
        if not found:
            raise ConfigError(
                f"{where}: expected references to places inside the schema (`#/$defs/...`), got `{reference:.120}`, "
                "which is not there; put what it means into `$defs`"
            )


def _references(schema: Json) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from (value for key, value in schema.items() if key in _REFERENCE_KEYS and isinstance(value, str))
    for child in _subschemas(schema):
        yield from _references(child)


def _subschemas(schema: Json) -> Iterator[Json]:
    if isinstance(schema, list):
        yield from schema
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key in NAMED_KEYS and isinstance(value, dict):
                yield from value.values()
            elif key not in DATA_KEYS:
                yield value


def _resolve(reference: str, root: Schema) -> tuple[bool, Json]:
    """Follow a JSON pointer; never a URL."""
    if reference in {"#", "#/"}:
        return True, root
    if not reference.startswith("#/"):
        return False, None
    place: Json = root
    for step in unquote(reference[2:]).split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict) and name in place:
            place = place[name]
        elif isinstance(place, list) and name.isdecimal() and int(name) < len(place):
            place = place[int(name)]
        else:
            return False, None
    return True, place
