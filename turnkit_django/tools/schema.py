"""From a signature or a raw JSON Schema to what a provider accepts and what arguments are checked against."""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import docstring_parser
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import SchemaError, core_schema

from turnkit_django.core.content import Json, clean_json
from turnkit_django.errors import ConfigError, ToolError
from turnkit_django.tools.arguments import Checker, TypedArguments
from turnkit_django.tools.context import ToolContext
from turnkit_django.tools.raw_schema import DATA_KEYS, NAMED_KEYS, Schema, read_raw_schema
from turnkit_django.tools.results import to_json

MAX_SCHEMA_CHARACTERS = 100_000
"""A longer schema is refused when the tool is defined: providers answer it with an error on every turn."""

CONTEXT = "context"
"""The parameter that receives the `ToolContext`; the model never sees it."""

_UNDESCRIBED = (PydanticUserError, SchemaError, TypeError, NameError, ValueError)
_REST = inspect.Parameter.VAR_KEYWORD


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a tool takes.

    Attributes:
        schema: JSON Schema for the model: type object, properties present, every reference resolves.
        checker: Decides whether arguments fit.
        takes_context: Whether the body wants the `ToolContext`.
        description: The docstring of the body without its sections.
    """

    schema: Schema
    checker: Checker
    takes_context: bool
    description: str


def read_parameters(body: Callable[..., object], *, raw: Mapping[str, object] | None, where: str) -> Parameters:
    """The parameters of a tool's body, or those of its raw schema.

    Args:
        body: The function or bound method that does the work.
        raw: The JSON Schema that replaces the signature, or None.
        where: Names the tool, the file and the line; every message starts with it.

    Raises:
        ConfigError: The signature or the schema cannot be used.
    """
    description, documented = _read_docstring(body)
    signature = _signature(body, where=where)
    takes_context = CONTEXT in signature.parameters
    if takes_context:
        _check_context(body, where=where)
    if raw is not None:
        reserved = _reserved(signature, where=where)
        schema, checker = read_raw_schema(raw, reserved=reserved, where=where)
    else:
        if body.__doc__ is not None:  # an inherited docstring may tell of other parameters
            _check_documented(documented, signature=signature, where=where)
        schema, checker = _from_signature(body, signature=signature, documented=documented, where=where)
    if (size := len(json.dumps(schema))) > MAX_SCHEMA_CHARACTERS:
        raise ConfigError(
            f"{where}: expected a parameter schema of at most {MAX_SCHEMA_CHARACTERS:,} characters, got {size:,}; "
            "shorten it or split the tool"
        )
    return Parameters(schema, checker, takes_context, description)


def _read_docstring(body: Callable[..., object]) -> tuple[str, dict[str, str]]:
    text = inspect.getdoc(body) or ""
    try:
        parsed = docstring_parser.parse(text, style=docstring_parser.DocstringStyle.GOOGLE)
    except docstring_parser.ParseError:
        return text, {}
    told = [param for param in parsed.params if param.args[0] == "param"]  # not the attributes of a class
    return parsed.description or "", {each.arg_name: " ".join((each.description or "").split()) for each in told}


def _check_documented(documented: Mapping[str, str], *, signature: inspect.Signature, where: str) -> None:
    for name in documented:
        if name not in signature.parameters:
            known = ", ".join(f"`{each}`" for each in signature.parameters) or "none"
            raise ConfigError(
                f"{where}: expected `Args:` of the docstring to tell of parameters, got `{name:.80}`; "
                f"the parameters are: {known}"
            )


def _check_context(body: Callable[..., object], *, where: str) -> None:
    function = inspect.unwrap(body)
    if CONTEXT not in function.__annotations__:
        return
    try:
        hint = _hints(body, names=[CONTEXT], where=where)[CONTEXT]
    except ConfigError:  # often imported for type checkers alone
        return
    if all(each is not ToolContext and each is not Any for each in (hint, *typing.get_args(hint))):
        raise ConfigError(
            f"{where}: expected `{CONTEXT}` to be annotated with `ToolContext`, got `{hint!r:.80}`; "
            "the runtime fills it in: give a parameter that the model fills in another name"
        )


def _signature(body: Callable[..., object], *, where: str) -> inspect.Signature:
    try:
        return inspect.signature(body)
    except NameError as error:  # from Python 3.14 on annotations are evaluated here
        raise _unresolved(error, where=where) from None


def _reserved(signature: inspect.Signature, *, where: str) -> frozenset[str]:
    """Names that the model may not send, because Python would bind them to something else."""
    kinds = {each.kind for each in signature.parameters.values()}
    others = [name for name, each in signature.parameters.items() if name != CONTEXT and each.kind is not _REST]
    if _REST not in kinds or others:
        raise ConfigError(
            f"{where}: expected `**arguments` with a raw schema in `parameters`, got `{signature}`; "
            "write `def call(**arguments)`, with `context` before it if you need it"
        )
    return frozenset({CONTEXT, "self"})


def _unresolved(error: Exception, *, where: str) -> ConfigError:
    return ConfigError(
        f"{where}: expected annotations that exist at run time, got {error}; "
        "define or import the name at the top of the module, outside `if TYPE_CHECKING`"
    )


def _from_signature(
    body: Callable[..., object], *, signature: inspect.Signature, documented: Mapping[str, str], where: str
) -> tuple[Schema, Checker]:
    wanted = [_supported(each, where=where) for name, each in signature.parameters.items() if name != CONTEXT]
    hints = _hints(body, names=[each.name for each in wanted], where=where)
    # Parameters become aliases: as field names, words such as `json`, `copy` or `_id` would clash with pydantic's own.
    fields = {f"field_{index}": _field(each, hints[each.name]) for index, each in enumerate(wanted)}
    try:
        checker = TypedArguments(_model(fields))
        defaults = _defaults(checker, where=where)
        schema = checker.model.model_json_schema(schema_generator=_PlainSchema)
    except _UNDESCRIBED as error:
        raise _unsupported(fields, wanted, error=error, where=where) from error
    properties = schema.setdefault("properties", {})
    for name, shape in properties.items():
        if documented.get(name):
            shape.setdefault("description", documented[name])
        if "default" in shape:
            shape["default"] = defaults[name]
    return cast("Schema", clean_json(_without_titles(schema))), checker


def _supported(parameter: inspect.Parameter, *, where: str) -> inspect.Parameter:
    name = parameter.name
    match parameter.kind:
        case inspect.Parameter.POSITIONAL_ONLY:
            raise ConfigError(f"{where}: expected keyword parameters, got the positional-only `{name}`; remove the `/`")
        case inspect.Parameter.VAR_POSITIONAL:
            raise ConfigError(
                f"{where}: expected named parameters, got `*{name}`; use one parameter of type `list[...]`"
            )
        case inspect.Parameter.VAR_KEYWORD:
            raise ConfigError(
                f"{where}: expected named parameters, got `**{name}`; name and annotate each one, "
                "or give a JSON Schema with `parameters={...}`"
            )
    if parameter.annotation is inspect.Parameter.empty:
        raise ConfigError(f"{where}: expected an annotation on `{name}`, got none; write for example `{name}: str`")
    return parameter


def _hints(body: Callable[..., object], *, names: list[str], where: str) -> dict[str, Any]:
    function = inspect.unwrap(body)
    written = {name: function.__annotations__[name] for name in names}
    # Only these: `context` and the return type are often imported for type checkers alone.
    holder = types.SimpleNamespace(__annotations__=written)
    try:
        return typing.get_type_hints(holder, globalns=getattr(function, "__globals__", {}), include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise _unresolved(error, where=where) from error


def _field(parameter: inspect.Parameter, hint: Any) -> tuple[Any, FieldInfo]:
    default: Any = ... if parameter.default is inspect.Parameter.empty else parameter.default
    names = {"alias": parameter.name, "validation_alias": parameter.name, "serialization_alias": parameter.name}
    if isinstance(default, FieldInfo):
        return typing.Annotated[hint, default], Field(**cast("dict[str, Any]", names))
    if default is ...:
        return hint, Field(**cast("dict[str, Any]", names))
    return hint, Field(default=default, **cast("dict[str, Any]", names))


def _model(fields: Mapping[str, tuple[Any, FieldInfo]]) -> type[BaseModel]:
    make = cast("Callable[..., type[BaseModel]]", create_model)
    return make("Arguments", __config__=ConfigDict(extra="forbid"), **fields)


def _unsupported(
    fields: Mapping[str, tuple[Any, FieldInfo]], wanted: list[inspect.Parameter], *, error: Exception, where: str
) -> ConfigError:
    """Names the first parameter that cannot be described on its own."""
    for (key, field), parameter in zip(fields.items(), wanted, strict=True):
        try:
            _model({key: field}).model_json_schema(schema_generator=_PlainSchema)
        except _UNDESCRIBED as reason:
            return ConfigError(
                f"{where}: expected a type that JSON can carry on `{parameter.name}`, got `{field[0]!r:.80}` "
                f"({(str(reason) or repr(reason)).splitlines()[0]:.160}); "
                "use text, numbers, booleans, lists, dicts, enums, dates, Decimal, UUID, dataclasses or pydantic models"
            )
    return ConfigError(f"{where}: expected a signature that pydantic can describe, got: {error}"[:500])


def _defaults(checker: TypedArguments, *, where: str) -> dict[str, Json]:
    """The defaults as JSON: each must pass its own check, since a call stores and shows it like a sent value."""
    defaults: dict[str, Json] = {}
    for field in checker.model.model_fields.values():
        if field.is_required():
            continue
        name = str(field.alias)
        try:
            defaults[name] = to_json(field.get_default(call_default_factory=True))
        except (ToolError, TypeError) as error:
            raise ConfigError(f"{where}: expected a default of `{name}` that JSON can carry, got: {error}") from error
    try:
        found = checker.problems(defaults)
    except ToolError as error:
        raise ConfigError(f"{where}: expected defaults that fit their annotations, got: {error}") from error
    for place, _kind, message in [] if isinstance(found, BaseModel) else found:
        if place and place[0] in defaults:
            raise ConfigError(
                f"{where}: expected a default of `{place[0]}` that fits its annotation, got: {message}; "
                "change the default or the annotation (`int | None` allows None)"
            )
    return defaults


class _PlainSchema(GenerateJsonSchema):
    """Without the look-ahead pattern that some versions of pydantic add to a Decimal: providers refuse it."""

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> dict[str, Any]:
        plain = super().decimal_schema(schema)
        for branch in plain.get("anyOf", []):
            branch.pop("pattern", None)
        return plain


def _without_titles(schema: Any) -> Any:
    """Titles are class and field names once more, paid for in every request."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {}
    for key, value in schema.items():
        if key == "title":
            continue
        if key in NAMED_KEYS:
            plain[key] = {name: _without_titles(child) for name, child in value.items()}
        else:
            plain[key] = value if key in DATA_KEYS else _without_titles(value)
    return plain
