import asyncio
import json
import re
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import AfterValidator, BeforeValidator, Field

from turnkit_django import Tool, ToolContext, tool
from turnkit_django.errors import ConfigError, ToolValidationError
from turnkit_django.tools.tool import as_tool


@dataclass
class Row:
    id: str


CONTEXT = ToolContext(turn=Row("turn_1"), execution=Row("tool_1"), conversation=Row("conv_1"), principal={"user": 7})


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@tool
def pay(order_id: int, amount: Decimal = Decimal("1.50"), tags: list[str] | None = None) -> dict[str, object]:
    """Pay an order.

    Args:
        order_id: The number on the invoice.
    """
    return {"order_id": order_id, "amount": amount, "tags": tags}


@tool
def get_stock(sku: str = "", depot: str = "") -> str:
    return f"{sku}@{depot}"


def refusal(of: Tool, text: str | None) -> str:
    with pytest.raises(ToolValidationError) as caught:
        of.validate(text)
    return str(caught.value)


def invoke(subject: Tool, arguments: dict[str, object]) -> object:
    return subject.invoke(subject.validate(json.dumps(arguments)), context=CONTEXT)


# Declaration


def test_a_bare_function_becomes_a_tool_named_and_described_by_itself():
    spec = pay.spec()

    assert (spec.name, spec.description) == ("pay", "Pay an order.")
    assert list(spec.parameters["properties"]) == ["order_id", "amount", "tags"]


def test_a_decorated_function_can_still_be_called_as_a_function():
    assert get_stock("AB", depot="north") == "AB@north"
    assert get_stock.call("AB") == "AB@"
    assert repr(get_stock) == "<FunctionTool get_stock>"


def test_options_of_the_decorator_become_attributes_and_the_hint_ends_the_description():
    @tool(name="give-back", description="Refund.", usage_hint="Only once.", terminal=True, recovery="replay_safe")
    def refund() -> None: ...

    assert refund.spec().description == "Refund.\n\nOnly once."
    assert (refund.spec().name, refund.terminal, refund.recovery) == ("give-back", True, "replay_safe")


class SaveReport(Tool):
    """Save the final report."""

    terminal = True

    def __init__(self, *, folder: str = "out") -> None:
        self.folder = folder

    def call(self, title: str, *, context: ToolContext) -> dict[str, str]:
        return {"id": f"{self.folder}/{title}", "key": context.idempotency_key}

    def completion(self, result: dict[str, Any]) -> str:
        return f"Saved {result['id']}."


class HTTPGetPage(Tool):
    def __init__(self, session: object) -> None:
        self.session = session

    def call(self, url: str) -> object:
        """Read a page.

        Args:
            url: Where it is.
        """
        return self.session


def test_a_class_is_named_in_snake_case_and_described_by_its_docstring():
    assert as_tool(SaveReport).spec().name == "save_report"
    assert [use.name for use in (SaveReport(),) if use.spec()] == ["save_report"]
    assert as_tool(SaveReport).spec().description == "Save the final report."


def test_a_class_without_a_docstring_is_described_by_its_call():
    spec = HTTPGetPage(session=1).spec()

    assert (spec.name, spec.description) == ("http_get_page", "Read a page.")
    assert spec.parameters["properties"] == {"url": {"type": "string", "description": "Where it is."}}


def test_attributes_and_methods_are_inherited():
    class SaveDraft(SaveReport):
        name = "save_draft"

    assert as_tool(SaveDraft).terminal is True
    assert as_tool(SaveDraft).spec().description == "Save the final report."
    assert as_tool(SaveDraft).completion({"id": "x"}) == "Saved x."


def test_a_dataclass_may_be_a_tool_and_its_generated_docstring_is_not_shown_to_the_model():
    @dataclass(frozen=True)
    class Search(Tool):
        index: str

        def call(self, query: str) -> str:
            """Search the index."""
            return f"{self.index}: {query}"

    search = Search(index="books")

    assert search.spec().description == "Search the index."
    assert invoke(search, {"query": "x"}) == "books: x"


def test_an_instance_keeps_what_it_was_given():
    instance = SaveReport(folder="archive")

    assert as_tool(instance) is instance
    assert invoke(instance, {"title": "May"}) == {"id": "archive/May", "key": "turnkit:tool:tool_1"}


def test_a_class_that_needs_arguments_is_refused_with_advice():
    with pytest.raises(ConfigError, match=r"HTTPGetPage.*pass an instance: tools=\[HTTPGetPage\(\.\.\.\)\]"):
        as_tool(HTTPGetPage)


def plain(order_id: int) -> None: ...


@pytest.mark.parametrize(
    ("entry", "advice"),
    [(plain, "decorate it with `@tool`"), ("pay", "list tools"), (None, "list tools"), (dict, "list tools")],
)
def test_what_is_no_tool_is_refused(entry: object, advice: str):
    with pytest.raises(ConfigError, match=advice):
        as_tool(entry)


def test_a_class_without_a_call_is_refused():
    class Idle(Tool):
        pass

    with pytest.raises(ConfigError, match=r"tool `idle` .*expected a method `call`"):
        as_tool(Idle).spec()
    with pytest.raises(NotImplementedError):
        Idle().call()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "has space"}, "expected a name of 1 to 64"),
        ({"name": "x" * 65}, "expected a name of 1 to 64"),
        ({"name": "line\n"}, "expected a name of 1 to 64"),
        ({"name": 5}, "expected a name of 1 to 64"),
        ({"recovery": "always"}, '"unknown" or "replay_safe", got \'always\''),
        ({"terminal": 1}, "expected True or False in `terminal`, got 1"),
        ({"description": 3}, "expected text in `description`, got 3"),
        ({"usage_hint": b"x"}, "expected text in `usage_hint`"),
    ],
)
def test_a_wrong_option_is_refused_with_file_and_line(options: dict[str, Any], message: str):
    def body() -> None: ...

    with pytest.raises(ConfigError) as caught:
        tool(**options)(body)

    assert message in str(caught.value)
    assert f"{__file__}:{body.__code__.co_firstlineno}" in str(caught.value)


def test_options_that_are_not_built_are_refused_by_python():
    with pytest.raises(TypeError, match="requires_approval"):
        tool(requires_approval=True)  # type: ignore[call-overload]


@pytest.mark.parametrize("target", [SaveReport, "name", len, 5])
def test_only_functions_are_decorated(target: Any):
    with pytest.raises(ConfigError, match="expected a function"):
        tool(target)


# Arguments


@pytest.mark.parametrize("text", ["", "  \n", None, "{}", " {} "])
def test_missing_and_blank_arguments_are_no_arguments(text: str | None):
    assert get_stock.validate(text).arguments == {"sku": "", "depot": ""}
    assert "`order_id` is missing" in refusal(pay, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("null", "expected a JSON object with the arguments, got a JSON null"),
        ("[]", "got a JSON list"),
        ("5", "got a JSON number"),
        ("5.5", "got a JSON number"),
        ("true", "got a JSON boolean"),
        ('"{}"', "got a JSON string"),
        ('{"sku": "AB-1', 'not valid JSON: Unterminated string starting at at character 8 of `{"sku": "AB-1`'),
        ('{"sku":?}', "not valid JSON: Expecting value"),
        ('{"sku": "a"}<|call|>', "expected one JSON object and nothing after it"),
        ('{"sku": "a"}{"sku": "b"}', "make one call for each object"),
        ('{"sku": "a", "sku": "b"}', "the name `sku` appears twice"),
        ('{"sku": {"a": 1, "a": 1}}', "the name `a` appears twice"),
        ('{"s\\u0000": 1, "s\\ufffd": 1}', "appears twice"),
        ('{"sku": NaN}', "NaN is not a JSON value"),
        ('{"sku": -Infinity}', "-Infinity is not a JSON value"),
        ('{"sku": 1e999}', "the number 1e999 is out of range"),
        ('{"sku": ' + "9" * 5000 + "}", "an integer with too many digits"),
        ('{"sku": ' + "[" * 150 + "]" * 150 + "}", "nested deeper than 100 levels"),
        ('{"a":' * 100_000, "nested deeper than 100 levels"),
        ("\ufeff{}", "not valid JSON"),
        ("{'sku': 'a'}", "not valid JSON"),
        ('{"sku": "a"} // note', "nothing after it"),
    ],
)
def test_what_is_not_exactly_one_object_is_refused_and_never_guessed(text: str, message: str):
    assert message in refusal(get_stock, text)


def test_a_refusal_of_broken_json_quotes_only_a_short_part():
    assert len(refusal(get_stock, '{"sku": "' + "x" * 100_000)) < 300


def test_a_control_token_inside_a_text_is_left_alone():
    assert get_stock.validate('{"sku": "<|call|>"}').values["sku"] == "<|call|>"


def test_what_postgresql_cannot_store_is_replaced_alike_in_what_is_shown_and_what_runs():
    valid = get_stock.validate('{"sku": "a\\u0000b\\ud800"}')

    assert valid.arguments["sku"] == valid.values["sku"] == "a\ufffdb\ufffd"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"order_id": "5"}', '`order_id`: Input should be a valid integer, got "5"'),
        ('{"order_id": 5.0}', "`order_id`: Input should be a valid integer"),
        ('{"order_id": true}', "`order_id`: Input should be a valid integer"),
        ('{"order_id": null}', "`order_id`: Input should be a valid integer"),
        ('{"order_id": 1, "amount": "much"}', "`amount`: Input should be a valid decimal"),
        ('{"order_id": 1, "tags": ["a", 2]}', "`tags[1]`: Input should be a valid string, got 2"),
        ('{"order_id": 1, "extra": 1}', "`extra` is not a parameter; known parameters: `order_id`, `amount`, `tags`"),
        ("{}", "`order_id` is missing"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(text: str, message: str):
    assert message in refusal(pay, text)


def test_a_refusal_stays_short_whatever_the_model_sent():
    text = json.dumps({"x" * 5000 + str(index): "y" * 5000 for index in range(50)})

    assert len(refusal(pay, text)) < 2_000
    assert "and more" in refusal(pay, text)


def test_rich_types_come_from_json_text():
    @tool
    def rich(day: date, key: UUID, color: Color, ratio: float) -> None: ...

    text = '{"day": "2026-02-03", "key": "12345678123456781234567812345678", "color": "red", "ratio": 1}'

    valid = rich.validate(text)

    assert valid.values == {
        "day": date(2026, 2, 3),
        "key": UUID("12345678123456781234567812345678"),
        "color": Color.RED,
        "ratio": 1.0,
    }
    assert valid.arguments == json.loads(text)


@pytest.mark.parametrize(
    "literal", ["0.1", '"1.10"', "1.10000000000000000000000000001", '"1e-30"', "123456789012345678901"]
)
def test_a_decimal_keeps_all_digits(literal: str):
    values = pay.validate(f'{{"order_id": 1, "amount": {literal}}}').values

    assert values["amount"] == Decimal(literal.strip('"'))


def test_a_number_with_too_many_digits_for_a_float_is_rounded_only_where_a_float_is_wanted():
    @tool
    def mix(price: Decimal | None, ratio: float, anything: Any, text: str = "") -> None: ...

    long = "0.33333333333333333333333333"
    valid = mix.validate(f'{{"price": {long}, "ratio": {long}, "anything": [{{"x": {long}}}]}}')

    assert valid.values["price"] == Decimal(long)
    assert valid.values["ratio"] == 1 / 3
    assert valid.values["anything"] == [{"x": 1 / 3}]
    assert valid.arguments["price"] == long
    assert "`text`: Input should be a valid string" in refusal(
        mix, f'{{"price": null, "ratio": 1, "anything": 1, "text": {long}}}'
    )


def test_defaults_are_stored_and_what_is_stored_is_what_runs():
    valid = pay.validate('{"order_id": 1}')

    assert valid.arguments == {"order_id": 1, "amount": "1.50", "tags": None}
    assert pay.validate(json.dumps(valid.arguments)) == valid


def test_a_mutable_default_is_not_shared_between_calls():
    @tool
    def collect(items: list[str] = []) -> None: ...  # noqa: B006

    collect.validate("{}").values["items"].append("x")  # type: ignore[attr-defined]

    assert collect.validate("{}").values["items"] == []


def test_a_validator_that_breaks_is_a_refusal_and_not_a_crash():
    def explode(value: int) -> int:
        raise KeyError("boom")

    @tool
    def fragile(number: Annotated[int, AfterValidator(explode)]) -> None: ...

    assert "could not be checked: KeyError" in refusal(fragile, '{"number": 1}')


def test_a_default_factory_that_breaks_is_a_refusal_and_not_a_crash():
    supply = iter([1])

    @tool
    def fragile(number: Annotated[int, Field(default_factory=lambda: next(supply))]) -> None: ...

    assert "could not be checked: StopIteration" in refusal(fragile, "{}")


def test_a_refusal_does_not_need_a_value_that_json_can_show():
    @tool
    def odd(number: Annotated[int, BeforeValidator(lambda value: object())]) -> None: ...

    assert refusal(odd, '{"number": 1}') == "the arguments do not fit: `number`: Input should be a valid integer"


def test_parameter_names_that_clash_with_pydantic_or_python_conventions_work():
    @tool
    def odd(json: str, copy: int, _hidden: int, model_config: str, schema: str = "x") -> None: ...

    text = '{"json": "a", "copy": 1, "_hidden": 2, "model_config": "b"}'

    assert odd.validate(text).values == {"json": "a", "copy": 1, "_hidden": 2, "model_config": "b", "schema": "x"}


# Calls


def test_the_context_is_passed_only_to_a_body_that_asks_for_it():
    @tool
    def who(*, context: ToolContext) -> object:
        return context.principal

    assert invoke(who, {}) == {"user": 7}
    assert invoke(get_stock, {"sku": "a", "depot": "b"}) == "a@b"


def test_the_model_cannot_send_a_context():
    @tool
    def who(*, context: ToolContext) -> object:
        return context.principal

    assert who.spec().parameters["properties"] == {}
    assert "`context` is not a parameter" in refusal(who, '{"context": {"principal": 1}}')


def test_an_async_body_is_waited_for():
    @tool
    async def slow(number: int) -> int:
        await asyncio.sleep(0)
        return number + 1

    assert invoke(slow, {"number": 1}) == 2


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)])
def test_exceptions_of_the_body_pass(error: BaseException):
    @tool
    def broken() -> None:
        raise error

    with pytest.raises(type(error)):
        invoke(broken, {})


def test_a_bound_method_is_a_tool_without_its_self():
    class Shop:
        def price(self, sku: str) -> str:
            return f"{sku}: 5"

    price = tool(Shop().price)

    assert invoke(price, {"sku": "a"}) == "a: 5"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"result": "All done."}, "All done."),
        ({"result": 5}, "5"),
        ({"result": {"a": 1}}, '{"a": 1}'),
        ({"result": None}, "Completed via get_stock."),
        ({"result": ""}, "Completed via get_stock."),
        ({"items": []}, "Completed via get_stock."),
        ({}, "Completed via get_stock."),
    ],
)
def test_the_completion_text_is_never_empty(result: dict[str, object], text: str):
    assert get_stock.completion(result) == text


# Raw schemas


def echo(**arguments: Any) -> Any:
    return arguments


ORDER = {"type": "object", "properties": {"order-id": {"type": "string"}}, "required": ["order-id"]}


def test_a_raw_schema_takes_any_parameter_names():
    any_name = tool(name="any-name", parameters=ORDER)(echo)

    valid = any_name.validate('{"order-id": "A", "more": 1}')

    assert valid.arguments == {"order-id": "A", "more": 1}
    assert any_name.invoke(valid, context=CONTEXT) == {"order-id": "A", "more": 1}


def test_a_class_with_a_raw_schema_may_take_the_context_too():
    class Remote(Tool):
        parameters = ORDER

        def call(self, *, context: ToolContext, **arguments: Any) -> Any:
            return [context.idempotency_key, arguments]

    remote = Remote()

    assert invoke(remote, {"order-id": "A"}) == ["turnkit:tool:tool_1", {"order-id": "A"}]
    assert "`self` is not a parameter" in refusal(remote, '{"order-id": "A", "self": 1}')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "'order-id' is a required property"),
        ('{"order-id": 5}', "`order-id`: 5 is not of type 'string'"),
        ("null", "expected a JSON object"),
    ],
)
def test_arguments_that_do_not_fit_a_raw_schema_are_refused_by_name(text: str, message: str):
    assert message in refusal(tool(name="echo", parameters=ORDER)(echo), text)


def test_unknown_names_are_refused_where_the_raw_schema_forbids_them():
    closed = tool(parameters=ORDER | {"additionalProperties": False})(echo)

    assert re.search(r"'x' was unexpected.*known parameters: `order-id`", refusal(closed, '{"order-id": "A", "x": 1}'))


def test_a_raw_check_that_breaks_is_a_refusal_and_not_a_crash():
    odd = tool(parameters={"properties": {"n": {"multipleOf": 1e-300}}})(echo)

    assert "could not be checked" in refusal(odd, '{"n": 1' + "0" * 400 + "}")


def test_a_default_that_its_own_validator_breaks_on_is_refused_when_decorated():
    def explode(value: int) -> int:
        raise KeyError("boom")

    def body(number: Annotated[int, AfterValidator(explode)] = 1) -> None: ...

    with pytest.raises(ConfigError, match=r"expected defaults that fit their annotations, got: .* KeyError"):
        tool(body)
