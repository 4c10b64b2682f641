import json
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from turnkit_django import Tool, ToolContext, tool
from turnkit_django.errors import ConfigError, ToolValidationError

if TYPE_CHECKING:
    from turnkit_django import ToolContext as OnlyForCheckers


def echo(**arguments: Any) -> Any:
    return arguments


def raw(parameters: Any) -> Tool:
    return tool(name="outside", parameters=parameters)(echo)


def references(schema: object) -> list[str]:
    if isinstance(schema, list):
        return [found for item in schema for found in references(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
    return own + [found for value in schema.values() for found in references(value)]


def check_for_providers(schema: Any) -> None:
    """Rule V14: type object, properties present, every reference resolves."""
    assert schema["type"] == "object"
    assert isinstance(schema["properties"], dict)
    assert set(schema.get("required", [])) <= set(schema["properties"])
    assert not {"oneOf", "anyOf", "allOf", "not", "enum", "$schema", "definitions"} & set(schema)
    for reference in references(schema):
        place = schema
        for step in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
            place = place[step]
    Draft202012Validator.check_schema(schema)
    json.dumps(schema, allow_nan=False)


# Signatures


class Line(BaseModel):
    sku: str
    price: Decimal = Decimal(1)
    parts: "list[Line]" = []


@tool
def order(
    lines: list[Line],
    note: Annotated[str, Field(description="Said by hand.", max_length=20)] = "",
    title: str = "",
    count: int = Field(default=3, ge=1),
    made: list[str] = Field(default_factory=list),  # noqa: B008
    kinds: set[str] = {"b", "a"},  # noqa: B006
) -> None:
    """Place an order.

    It is sent at once.

    Args:
        lines: What to buy,
            one line a product.
        note: Said in the docstring.
        title: Of the order.

    Returns:
        Nothing.
    """


def test_a_signature_becomes_a_schema_with_described_parameters():
    schema: Any = order.spec().parameters

    check_for_providers(schema)
    assert order.spec().description == "Place an order.\n\nIt is sent at once."
    assert schema["properties"]["lines"]["description"] == "What to buy, one line a product."
    assert schema["properties"]["note"]["description"] == "Said by hand."
    assert schema["required"] == ["lines"]
    assert schema["additionalProperties"] is False


def test_titles_are_left_out_but_a_parameter_may_be_called_title():
    schema: Any = order.spec().parameters

    assert schema["properties"].pop("title") == {"type": "string", "default": "", "description": "Of the order."}
    assert '"title"' not in json.dumps(schema)


def test_defaults_are_json_and_stable_between_processes():
    schema: Any = order.spec().parameters

    assert schema["properties"]["kinds"]["default"] == ["a", "b"]
    assert schema["properties"]["count"]["default"] == 3
    assert order.validate('{"lines": []}').values["made"] == []


def test_a_decimal_has_no_pattern_that_providers_refuse():
    @tool
    def pay(amount: Decimal) -> None: ...

    assert "pattern" not in json.dumps(pay.spec().parameters)


def test_a_function_without_parameters_has_empty_properties():
    @tool
    def ping() -> None: ...

    assert ping.spec().parameters == {"type": "object", "properties": {}, "additionalProperties": False}


def test_a_context_annotated_for_type_checkers_only_is_no_obstacle():
    @tool
    def who(name: "str", *, context: "OnlyForCheckers") -> "OnlyForCheckers":
        return context

    assert list(who.spec().parameters["properties"]) == ["name"]


@pytest.mark.parametrize("kind", [ToolContext, ToolContext | None, Annotated[ToolContext, {}], "ToolContext", Any])
def test_a_context_may_be_annotated_with_its_class_in_every_form(kind: Any):
    def who(name: str, context: kind) -> None: ...

    assert tool(who)._definition.takes_context


def test_a_context_of_another_class_is_refused_beside_a_raw_schema_too():
    def outside(context: int, **arguments: Any) -> None: ...

    with pytest.raises(ConfigError, match=r"tool `outside` .*annotated with `ToolContext`, got `<class 'int'>`"):
        tool(parameters={})(outside)


def test_the_context_may_be_described_and_what_is_no_argument_may_stand_in_other_sections():
    @tool
    def who(name: str, context: ToolContext) -> None:
        """Ask.

        Args:
            name: Of whom.
            context: Of the run.

        Attributes:
            anything: Is no argument.
        """

    assert list(who.spec().parameters["properties"]) == ["name"]


def test_an_inherited_docstring_may_tell_of_other_parameters():
    class Base(Tool):
        def call(self, *, old: str) -> None:
            """Do it.

            Args:
                old: What it was.
            """

    class Newer(Base):
        def call(self, *, new: str) -> None: ...  # type: ignore[override]

    assert list(Newer().spec().parameters["properties"]) == ["new"]


def test_a_broken_docstring_is_used_whole():
    def body(a: int) -> None:
        """Do it.

        Args:
            a
        """

    assert tool(body).spec().description == "Do it.\n\nArgs:\n    a"


def no_annotation(order_id): ...  # type: ignore[no-untyped-def]
def star(*names: str) -> None: ...
def keywords(**names: str) -> None: ...
def positional(order_id: int, /) -> None: ...
def unknown_name(order_id: "Missing") -> None: ...  # type: ignore[name-defined] # noqa: F821
def a_callable(order_id: int, callback: Callable[[int], int]) -> None: ...
def a_class(order_id: int, thing: object.__class__) -> None: ...  # type: ignore[valid-type]
def a_validator(order_id: int, validator: Draft202012Validator) -> None: ...
def wrong_default(order_id: int = None) -> None: ...  # type: ignore[assignment] # noqa: RUF013
def odd_default(order_id: Any = object()) -> None: ...  # noqa: B008
def other_context(order_id: int, context: dict[str, str]) -> None: ...
def text_context(order_id: int, *, context: "str | None" = None) -> None: ...


def unknown_entry(order_id: int, *, context: ToolContext) -> None:
    """Look it up.

    Args:
        order: The number.
    """


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (no_annotation, "expected an annotation on `order_id`, got none"),
        (star, r"expected named parameters, got `\*names`"),
        (keywords, r"got `\*\*names`; name and annotate each one, or give a JSON Schema"),
        (positional, "got the positional-only `order_id`"),
        (unknown_name, "name 'Missing' is not defined"),
        (a_callable, "on `callback`, got `collections.abc.Callable"),
        (a_class, "on `thing`, got"),
        (a_validator, "on `validator`, got"),
        (wrong_default, "default of `order_id` that fits its annotation, got: Input should be a valid integer"),
        (odd_default, "default of `order_id` that JSON can carry"),
        (other_context, r"expected `context` to be annotated with `ToolContext`, got `dict\[str, str\]`; the runtime"),
        (text_context, r"expected `context` to be annotated with `ToolContext`, got `str \| None`"),
        (unknown_entry, "to tell of parameters, got `order`; the parameters are: `order_id`, `context`"),
    ],
)
def test_a_signature_that_cannot_be_used_is_refused_with_name_file_and_line(body: Any, message: str):
    with pytest.raises(ConfigError, match=message) as caught:
        tool(body)

    assert str(caught.value).startswith(f"tool `{body.__name__}` ({__file__}:{body.__code__.co_firstlineno})")


def test_a_schema_that_is_too_long_is_refused():
    with pytest.raises(ConfigError, match=r"tool `outside` .*at most 100,000 characters, got 200,"):
        raw({"properties": {"a": {"description": "x" * 200_000}}})


# Raw schemas


FORMS: list[dict[str, Any]] = [
    {"type": "object"},
    {},
    {"type": "object", "additionalProperties": {}},
    {"type": ["object", "null"]},
    {
        "oneOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": False},
        ]
    },
    {
        "anyOf": [{"$ref": "#/$defs/A"}, {"required": ["b"]}],
        "$defs": {"A": {"properties": {"a": {}}, "required": ["a"]}},
    },
    {"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["a", "b"]}]},
    {"oneOf": [{"properties": {"kind": {"const": "x"}}}, {"properties": {"kind": {"const": "y"}}}]},
    {"$ref": "#/$defs/All", "$defs": {"All": {"type": "object", "properties": {"f": {"$ref": "#/$defs/F"}}}, "F": {}}},
    {"type": "object", "properties": {"f": {"$ref": "#/$defs/F"}}, "$defs": {"F": {"enum": ["fit", "raw"]}}},
    {"properties": {"n": {"type": ["integer", "null"], "default": None}}, "required": ["n", "missing_one"]},
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"x": {"$ref": "#/definitions/X"}, "$ref": {"type": "string"}},
        "definitions": {"X": {"anyOf": [{"type": "integer"}, {"items": {"$ref": "#/definitions/X"}, "type": "array"}]}},
    },
    {"type": "object", "properties": {"child": {"$ref": "#"}}},
    {"$ref": "#/$defs/T", "$defs": {"T": True}, "anyOf": [True]},
    {
        "definitions": {"X": {"enum": ["x"]}},
        "$defs": {"Y": {"items": {"$ref": "#/definitions/X"}}},
        "properties": {"z": {"anyOf": [{"$ref": "#/definitions/X"}, {"$ref": "#/$defs/Y"}]}},
    },
    {"type": "object", "not": {"required": ["x"]}, "enum": [{}]},
    {"$ref": "#"},
    {"properties": {"a/b": {"type": "string"}, "c": {"$ref": "#/properties/a~1b"}}},
    {"properties": {"c": {"$ref": "#/allOf/0"}}, "$defs": {"c": {"default": {"$ref": "data"}}}, "allOf": [{}]},
]


@pytest.mark.parametrize("form", FORMS[:-2], ids=lambda form: json.dumps(form)[:60])
def test_legal_schemas_that_providers_refuse_are_put_into_a_form_they_accept(form: dict[str, Any]):
    check_for_providers(raw(form).spec().parameters)


def test_a_reference_with_escaped_characters_resolves():
    assert raw(FORMS[-2]).validate('{"c": "x"}').values == {"c": "x"}


def test_a_reference_that_the_accepted_form_would_lose_is_refused():
    with pytest.raises(ConfigError, match="got `#/allOf/0`, which is not there"):
        raw(FORMS[-1])


def test_a_union_offers_the_names_of_all_its_members_and_requires_what_all_require():
    schema = raw(FORMS[4]).spec().parameters

    assert schema == {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    assert raw(FORMS[6]).spec().parameters["required"] == ["a", "b"]
    assert raw(FORMS[7]).spec().parameters["properties"] == {"kind": {"anyOf": [{"const": "x"}, {"const": "y"}]}}


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        (FORMS[4], '{"a": "x"}', '{"a": 1}'),
        (FORMS[4], "{}", '{"b": 1}'),
        (FORMS[5], '{"b": 1}', "{}"),
        (FORMS[9], '{"f": "fit"}', '{"f": "other"}'),
        (FORMS[10], '{"n": null, "missing_one": 1}', '{"n": 1}'),
        (FORMS[11], '{"x": 1}', '{"x": "1"}'),
        (FORMS[15], "{}", '{"x": 1}'),
    ],
)
def test_arguments_are_checked_against_the_original(form: dict[str, Any], good: str, bad: str):
    assert raw(form).validate(good).arguments == json.loads(good)
    with pytest.raises(ToolValidationError, match="the arguments do not fit"):
        raw(form).validate(bad)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ([], "expected a dict in `parameters`, got list"),
        ({"type": "string"}, "expected a schema of type object"),
        ({"type": "objekt"}, "expected a valid JSON Schema in `parameters`, got at type"),
        ({"properties": []}, "got at properties"),
        ({"properties": {"a": {"pattern": "("}}}, "got at properties/a/pattern"),
        ({"properties": {"a": {"$ref": "#/$defs/Gone"}}}, "got `#/\\$defs/Gone`, which is not there"),
        ({"properties": {"a": {"$ref": "http://example.com/s.json"}}}, "got `http://example.com/s.json`"),
        ({"properties": {"a": {"default": float("nan")}}}, "expected a JSON Schema in `parameters`, got: nan"),
        ({"properties": {1: {}}}, "JSON keys are text"),
        ({"properties": {"context": {}}}, "other than the reserved `context`"),
        ({"anyOf": [{"items": {"$ref": "#/anyOf/7"}}]}, "got `#/anyOf/7`"),
    ],
)
def test_a_schema_that_is_wrong_is_refused_with_the_name_of_the_tool(form: Any, message: str):
    with pytest.raises(ConfigError, match=message) as caught:
        raw(form)

    assert str(caught.value).startswith("tool `outside` (")


def test_a_schema_that_holds_itself_is_refused():
    form: dict[str, Any] = {}
    form["properties"] = {"a": form}

    with pytest.raises(ConfigError, match="expected a JSON Schema"):
        raw(form)


def test_a_raw_schema_is_copied():
    form: dict[str, Any] = {"properties": {"a": {"type": "string"}}}
    outside = raw(form)

    form["properties"]["a"]["type"] = "integer"

    assert outside.validate('{"a": "x"}').values == {"a": "x"}


@pytest.mark.parametrize("body", [order.function, lambda: None, lambda a, **rest: None])
def test_a_raw_schema_needs_a_body_that_takes_any_keyword(body: Any):
    with pytest.raises(ConfigError, match=r"expected `\*\*arguments` with a raw schema"):
        tool(name="outside", parameters={})(body)
