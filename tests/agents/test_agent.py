import json
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from turnkit_django import Agent, Tool, tool
from turnkit_django.errors import ConfigError


@tool
def look_up(order_id: int) -> dict[str, int]:
    """Look up an order."""
    return {"order_id": order_id}


class Save(Tool):
    recovery = "replay_safe"

    def call(self, title: str) -> None: ...


class Named(Tool):
    def __init__(self, name: str) -> None:
        self.name = name

    def call(self) -> None: ...


class Client:
    def validate(self, model: str) -> None: ...

    def complete(self, request: Any) -> Any: ...


def build(**options: Any) -> Agent:
    return Agent(**{"name": "support", **options})


def test_the_defaults_leave_every_limit_to_the_settings():
    agent = build()

    assert (agent.version, agent.description, agent.instructions, agent.tools) == ("1", "", "", ())
    assert (agent.model, agent.max_iterations, agent.timeout, agent.max_output_tokens) == (None, None, None, None)
    assert (agent.thinking, agent.client) == (None, None)
    assert repr(agent) == "<Agent support version 1>"


def test_options_are_kept_in_one_form():
    client = Client()
    agent = build(
        instructions="\n Be kind. \n",
        tools=[look_up, Save],
        max_iterations=0,
        timeout=90,
        thinking={"effort": "low", "budget": 10},
        client=client,
    )

    assert agent.instructions == "Be kind."
    assert [type(each).__name__ for each in agent.tools] == ["FunctionTool", "Save"]
    assert (agent.max_iterations, agent.timeout) == (0, timedelta(seconds=90))
    assert agent.thinking == {"effort": "low", "budget": 10}
    assert agent.client is client


def test_tools_are_found_by_the_name_the_model_uses():
    agent = build(tools=[look_up, Save])

    assert agent.tool_named("look_up") is look_up
    assert agent.tool_named("lookup") is None
    assert agent.tool_names == ("look_up", "save")
    assert [spec.name for spec in agent.tool_specs()] == ["look_up", "save"]


def test_an_agent_cannot_be_changed():
    thinking = {"effort": "low"}
    agent = build(thinking=thinking)

    with pytest.raises(AttributeError, match="agent `support` is immutable"):
        agent.model = "other"
    with pytest.raises(AttributeError, match="agent `support` is immutable"):
        del agent.model
    thinking["effort"] = "high"
    assert agent.thinking == {"effort": "low"}
    with pytest.raises(TypeError):
        agent.thinking["effort"] = "high"  # type: ignore[index]


def test_agents_are_equal_only_if_they_are_the_same_object():
    first, second = build(), build()

    assert first != second
    assert first.fingerprint == second.fingerprint
    assert len({first, second}) == 2


@pytest.mark.parametrize("name", ["", "has space", "1st", "a-b", "näme", "a\n", "x" * 65, None, 5])
def test_a_name_that_cannot_become_a_tool_name_is_refused(name: Any):
    with pytest.raises(ConfigError, match="expected 1 to 64 letters, digits or `_`, not starting with a digit"):
        Agent(name=name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": 2}, r"`version` to be text that is not empty, got 2 \(int\)"),
        ({"version": " "}, "`version` to be text that is not empty"),
        ({"description": None}, "`description` to be text"),
        ({"model": ""}, "`model` to be text that is not empty"),
        ({"model": object}, "`model` to be text"),
        ({"instructions": ["a"]}, "`instructions` to be text"),
        ({"tools": look_up}, "`tools` to be a list"),
        ({"tools": "look_up"}, "`tools` to be a list"),
        ({"tools": {look_up}}, "`tools` to be a list"),
        ({"tools": [lambda: None]}, "expected a tool, got .*decorate it with `@tool`"),
        ({"tools": [None]}, "expected a tool, got None"),
        ({"tools": [Named]}, r"pass an instance: tools=\[Named\(\.\.\.\)\]"),
        ({"tools": [Named("has space")]}, "expected a name of 1 to 64"),
        ({"tools": [Named("look_up"), look_up]}, "expected each tool name once, got `look_up` twice"),
        ({"tools": [Named(f"t{number}") for number in range(129)]}, "at most 128 tools, got 129"),
        ({"max_iterations": -1}, "`max_iterations` to be a whole number of at least 0"),
        ({"max_iterations": True}, "`max_iterations` to be a whole number"),
        ({"max_iterations": "5"}, "`max_iterations` to be a whole number"),
        ({"max_output_tokens": 0}, "`max_output_tokens` to be a whole number of at least 1"),
        ({"max_output_tokens": 1.5}, "`max_output_tokens` to be a whole number"),
        ({"timeout": -1}, "`timeout` to be a timedelta or a whole number of seconds, more than 0, or None, got -1"),
        (
            {"timeout": 0},
            r"`timeout` to be a timedelta or a whole number of seconds, more than 0, or None, got 0 \(int",
        ),
        ({"timeout": timedelta(0)}, "`timeout` to be a timedelta or a whole number of seconds, more than 0"),
        ({"timeout": 1.5}, "`timeout` to be a timedelta"),
        ({"timeout": True}, "`timeout` to be a timedelta"),
        ({"timeout": 10**30}, "`timeout` to be "),
        ({"timeout": timedelta(seconds=-1)}, "`timeout` to be a timedelta"),
        ({"timeout": 10**12}, r"`timeout` to be at most 2147483647 seconds, or None, got 1000000000000 \(int\)"),
        ({"timeout": timedelta(days=10**6)}, "`timeout` to be at most 2147483647 seconds"),
        ({"max_iterations": 2**40}, "`max_iterations` to be at most 2147483647, or None, got 1099511627776"),
        ({"max_output_tokens": 2**31}, "`max_output_tokens` to be at most 2147483647"),
        ({"thinking": {"budget": 2**40}}, "`thinking budget` to be at most 2147483647"),
        ({"version": "1\x00"}, "`version` to be text without NUL and lone surrogates, got '1.x00' .* at character 1"),
        ({"model": "m\ud800"}, "`model` to be text without NUL and lone surrogates"),
        ({"description": "\x00"}, "`description` to be text without NUL and lone surrogates"),
        ({"instructions": "Be\udfff"}, "`instructions` to be text without NUL and lone surrogates"),
        ({"thinking": {}}, "`thinking` to be a dict with"),
        ({"thinking": "high"}, "`thinking` to be a dict with"),
        ({"thinking": {"depth": 1}}, "`thinking` to be a dict with"),
        ({"thinking": {"effort": "huge"}}, "`thinking` to be a dict with"),
        ({"thinking": {"budget": None}}, "`thinking` to be a dict with"),
        ({"thinking": {"budget": "5"}}, "`thinking budget` to be a whole number of at least 1"),
        ({"thinking": {"budget": True}}, "`thinking budget` to be a whole number of at least 1"),
        ({"client": "turnkit_django.clients.LiteLLMClient"}, "`client` to be a model client"),
        ({"client": Client}, "`client` to be a model client"),
        ({"on_event": lambda a, b: None}, "`on_event` to be a callable that can be called with one event alone"),
        ({"on_event": [print, lambda: None]}, "`on_event` to be a callable that can be called with one event alone"),
    ],
)
def test_a_wrong_option_is_refused_with_the_name_of_the_agent(options: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message) as caught:
        build(**options)

    assert str(caught.value).startswith("agent `support`: ")


def test_as_many_tools_as_providers_take_are_allowed():
    assert len(build(tools=[Named(f"t{number}") for number in range(128)]).tools) == 128


@pytest.mark.parametrize("option", ["max_spend", "skills", "output_schema", "on_version_change"])
def test_options_that_are_not_built_are_refused_by_python(option: str):
    with pytest.raises(TypeError, match=option):
        build(**{option: None})


@pytest.mark.parametrize(
    "options",
    [
        {"name": "other"},
        {"version": "2"},
        {"description": "x"},
        {"model": "m"},
        {"instructions": "x"},
        {"tools": [look_up]},
        {"tools": [Save]},
        {"max_iterations": 0},
        {"timeout": 5},
        {"max_output_tokens": 5},
        {"thinking": {"budget": 5}},
    ],
)
def test_every_part_of_a_definition_changes_the_fingerprint(options: dict[str, Any]):
    assert build(**options).fingerprint != build().fingerprint


def test_flags_and_order_of_tools_change_the_fingerprint_but_the_client_does_not():
    class Risky(Save):
        name = "save"
        recovery = "unknown"

    class Final(Save):
        name = "save"
        terminal = True

    prints = {build(tools=tools).fingerprint for tools in ([Save], [Risky], [Final], [Save, look_up], [look_up, Save])}

    assert len(prints) == 5
    assert build(client=Client()).fingerprint == build().fingerprint


def test_a_fingerprint_is_the_same_in_every_process():
    code = """
from turnkit_django import Agent, tool

@tool
def pick(colors: set[str] = {"red", "green", "blue", "black", "white"}) -> None: ...

print(Agent(name="support", tools=[pick], thinking={"budget": 5, "effort": "low"}).fingerprint)
"""
    prints = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout.strip()
        for seed in ("1", "2", "3")
    }

    assert [len(found) for found in prints] == [64]


def test_the_specs_of_an_agent_can_be_sent():
    json.dumps([dict(spec.parameters) for spec in build(tools=[look_up, Save]).tool_specs()], allow_nan=False)


def test_the_defining_module_is_seen_past_the_constructor_of_a_subclass():
    class House(Agent):
        def __init__(self, *, name: str) -> None:
            super().__init__(name=name, instructions="House rules.")

    assert House(name="house").module == build().module == __name__


def test_a_number_that_python_does_not_print_is_refused_too():
    with pytest.raises(
        ConfigError, match="`max_iterations` to be at most 2147483647, or None, got an int of 16610 bits"
    ):
        build(max_iterations=10**5000)
    with pytest.raises(ConfigError, match="an int of 16610 bits"):
        build(timeout=10**5000)


def test_the_greatest_limits_are_taken():
    agent = build(max_iterations=2**31 - 1, max_output_tokens=2**31 - 1, timeout=2**31 - 1)
    assert agent.timeout == timedelta(seconds=2**31 - 1)
