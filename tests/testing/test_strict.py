from __future__ import annotations

import copy
from typing import Any

import pytest

from turnkit_django.testing.provider_state import ProviderStates
from turnkit_django.testing.strict import StrictRequestError, check_request

NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
SCHEMA = {"type": "object", "properties": {"q": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": NODE}}
GOOD: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hello"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": {}}'}},
                {"id": "c2", "type": "function", "function": {"name": "search", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
    ],
    "tools": [{"type": "function", "function": {"name": "search", "description": "", "parameters": SCHEMA}}],
}
ASSISTANT = ("messages", 2)
CALL = (*ASSISTANT, "tool_calls", 0)
PARAMETERS = ("tools", 0, "function", "parameters")
GONE = object()
MARK = {"type": "ephemeral"}


def changed(*changes: tuple[tuple[Any, ...], Any]) -> dict[str, Any]:
    body = copy.deepcopy(GOOD)
    for path, value in changes:
        place: Any = body
        for step in path[:-1]:
            place = place[step]
        if value is GONE:
            del place[path[-1]]
        else:
            place[path[-1]] = value
    return body


def rules(body: dict[str, Any], **options: Any) -> set[str]:
    return {violation.split()[0] for violation in check_request(body, **options)}


def marked(count: int, words: str = "x") -> list[dict[str, Any]]:
    return [{"type": "text", "text": words, "cache_control": MARK} for _ in range(count)]


def tools(count: int) -> list[dict[str, Any]]:
    functions = [{"name": f"search{number or ''}", "description": "", "parameters": SCHEMA} for number in range(count)]
    return [{"type": "function", "function": function} for function in functions]


def test_a_sound_request_breaks_no_rule() -> None:
    assert check_request(GOOD) == []


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("V1", [((*CALL, "id"), "")]),
        ("V1", [((*CALL, "id"), None)]),
        ("V1", [((*CALL, "id"), GONE)]),
        ("V1", [((*CALL, "id"), "c2"), (("messages", 3, "tool_call_id"), "c2")]),
        ("V2", [(("messages", 4), GONE)]),
        ("V2", [(("messages", 3), {"role": "user", "content": "and?"})]),
        ("V2", [(("messages", 3, "tool_call_id"), "c2"), (("messages", 4, "tool_call_id"), "c1")]),
        ("V3", [(("messages", 4, "tool_call_id"), "c9")]),
        ("V3", [(("messages", 4, "tool_call_id"), "c1")]),
        ("V3", [((*ASSISTANT, "tool_calls"), GONE)]),
        ("V4", [(("messages", 0, "content"), "")]),
        ("V4", [(("messages", 0, "content"), " \n")]),
        ("V4", [(("messages", 1, "content"), "  ")]),
        ("V4", [(("messages", 1, "content"), None)]),
        ("V4", [(("messages", 1, "content"), [])]),
        ("V4", [(("messages", 1, "content"), [{"type": "text", "text": " "}])]),
        ("V4", [((*ASSISTANT, "content"), "")]),
        ("V4", [((*ASSISTANT, "content"), "  ")]),
        ("V4", [((*ASSISTANT, "tool_calls"), [])]),
        ("V5", [(("messages", 3, "content"), "")]),
        ("V5", [(("messages", 3, "content"), " \n")]),
        ("V5", [(("messages", 3, "content"), None)]),
        ("V5", [(("messages", 3, "content"), [{"type": "text", "text": "x"}])]),
        ("V6", [(("messages", 1), GONE)]),
        ("V6", [(("messages",), GOOD["messages"][:1])]),
        ("V6", [(("messages",), [])]),
        ("V6", [(("messages",), [*GOOD["messages"], {"role": "assistant", "content": "x"}])]),
        ("V7", [((*CALL, "function", "arguments"), '{"sku": "AB-1')]),
        ("V7", [((*CALL, "function", "arguments"), "")]),
        ("V7", [((*CALL, "function", "arguments"), "[]")]),
        ("V7", [((*CALL, "function", "arguments"), "null")]),
        ("V7", [((*CALL, "function", "arguments"), {})]),
        ("V7", [((*CALL, "function", "arguments"), '{"a": NaN}')]),
        ("V8", [((*CALL, "function", "name"), "a b")]),
        ("V8", [((*CALL, "function", "name"), "")]),
        ("V8", [((*CALL, "function", "name"), None)]),
        ("V8", [((*CALL, "function"), None)]),
        ("V8", [((*CALL, "function", "name"), "gone"), (("messages", 3), GONE)]),
        ("V8", [(("tools", 0, "function", "name"), "x" * 65)]),
        ("V8", [(("tools",), [*tools(1), *tools(1)])]),
        ("V9", [((*CALL, "id"), "functions.search:0")]),
        ("V9", [((*CALL, "id"), "x" * 41)]),
        ("V10", [(("messages", 1, "content"), "\ud83d")]),
        ("V10", [(("messages", 1, "content"), "a\x00b")]),
        ("V10", [(("temperature",), float("nan"))]),
        ("V10", [(("temperature",), float("inf"))]),
        ("V10", [(("metadata",), {"a": object()})]),
        ("V11", [(("messages", 1, "content"), marked(5))]),
        ("V11", [(("messages", 1, "content"), [*marked(1, words=""), *marked(1)])]),
        ("V13", [(("tools",), [])]),
        ("V13", [(("tools",), GONE)]),
        ("V13", [(("tools",), tools(129))]),
        ("V14", [((*PARAMETERS, "type"), "string")]),
        ("V14", [((*PARAMETERS, "type"), GONE)]),
        ("V14", [((*PARAMETERS, "properties"), GONE)]),
        ("V14", [(PARAMETERS, None)]),
        ("V14", [((*PARAMETERS, "$defs"), {})]),
        ("V14", [((*PARAMETERS, "$defs", "Node"), {"$ref": "https://example.com/schema"})]),
    ],
)
def test_a_broken_rule_is_named(rule: str, changes: Any) -> None:
    assert rule in rules(changed(*changes))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([((*ASSISTANT, "content"), GONE)], id="no content beside calls"),
        pytest.param([((*ASSISTANT, "content"), "Looking.")], id="text beside calls"),
        pytest.param([((*CALL, "function", "name"), "gone")], id="an answered call to a tool that is gone"),
        pytest.param([((*CALL, "id"), "x" * 40), (("messages", 3, "tool_call_id"), "x" * 40)], id="an id of 40"),
        pytest.param([(("messages", 1, "content"), "backslash \\u0000 as text")], id="an escape that is only text"),
        pytest.param([(("messages", 1, "content"), marked(4))], id="four cache marks"),
        pytest.param([(("tools",), tools(128))], id="128 tools"),
        pytest.param([(("messages", 0), GONE)], id="no system prompt"),
        pytest.param([(("messages", 1, "content"), [{"type": "image_url", "image_url": {}}])], id="an image"),
        pytest.param([((*PARAMETERS, "$defs"), {"Node": {}, "a/b~c": {}})], id="definitions nobody uses"),
        pytest.param([((*PARAMETERS, "properties"), {"$ref": {"type": "string"}})], id="a property called $ref"),
        pytest.param([((*PARAMETERS, "properties"), {"me": {"$ref": "#"}})], id="a reference to the whole"),
    ],
)
def test_what_providers_take_is_let_through(changes: Any) -> None:
    assert check_request(changed(*changes)) == []


def test_a_pointer_with_escapes_resolves() -> None:
    body = changed(((*PARAMETERS, "properties"), {"a": {"$ref": "#/$defs/a~1b~0c"}}))
    assert rules(body) == {"V14"}
    body["tools"][0]["function"]["parameters"]["$defs"]["a/b~c"] = {}
    assert rules(body) == set()


def test_no_tools_are_needed_without_calls() -> None:
    assert check_request({"messages": [{"role": "user", "content": "hi"}]}) == []


@pytest.mark.parametrize(("form", "taken"), [("null", {"content": None}), ("absent", {}), ("empty", {"content": ""})])
def test_no_text_beside_calls_has_the_one_form_the_model_takes(form: Any, taken: dict[str, Any]) -> None:
    for content in ({"content": None}, {}, {"content": ""}):
        body = changed((ASSISTANT, {"role": "assistant", **content, "tool_calls": GOOD["messages"][2]["tool_calls"]}))
        assert rules(body, empty_content=form) == (set() if content == taken else {"V4"})


def test_call_ids_match_the_pattern_of_the_model() -> None:
    assert rules(GOOD, call_id_pattern="[A-Za-z0-9]{9}") == {"V9"}
    assert rules(GOOD, call_id_pattern="c[0-9]") == set()


def test_a_violation_names_its_rule_and_its_place() -> None:
    found = check_request(changed(((*CALL, "function", "arguments"), "")))
    assert found == ["V7 messages[2].tool_calls[0].function.arguments: expected the text of a JSON object, got ''"]
    assert "V7 messages[2]" in str(StrictRequestError(found))


def test_a_body_full_of_junk_is_refused_without_a_crash() -> None:
    body = {"messages": [1, {"role": "assistant", "content": 5, "tool_calls": [None, 3]}], "tools": ["x", None]}
    assert {"V1", "V2", "V6", "V7", "V8", "V14"} <= rules(body)


# V12: provider state

SIGNED = {"role": "assistant", "content": "x", "thinking_blocks": [{"thinking": "t", "signature": "s"}]}
PLAIN = {"role": "assistant", "content": "x"}


def replay(message: dict[str, Any], *, to: str = "acme", made_by: str = "acme", made: Any = SIGNED) -> list[str]:
    states = ProviderStates()
    states.record(made, made_by)
    messages = [{"role": "user", "content": "a"}, message, {"role": "user", "content": "b"}]
    return check_request({"messages": messages}, states=states, provider=to)


def test_state_may_return_to_its_provider_unchanged() -> None:
    assert replay(SIGNED) == []
    assert replay({**PLAIN, "provider_specific_fields": {"thinking_blocks": SIGNED["thinking_blocks"]}}) == []


def test_state_must_be_complete() -> None:
    (violation,) = replay(PLAIN)
    assert violation.startswith("V12 messages[1]: thinking_blocks")


def test_state_must_be_unchanged() -> None:
    (violation,) = replay({**SIGNED, "thinking_blocks": [{"thinking": "t", "signature": "S"}]})
    assert "was changed" in violation


def test_state_goes_to_no_other_provider() -> None:
    assert replay(PLAIN, to="other") == []
    (violation,) = replay(SIGNED, to="other")
    assert violation.startswith("V12 messages[1]: thinking_blocks")


def test_signatures_of_calls_count() -> None:
    calls = [{**GOOD["messages"][2]["tool_calls"][0], "provider_specific_fields": {"thought_signature": "t"}}]
    made = {"role": "assistant", "content": None, "tool_calls": calls}
    bare = [{**GOOD["messages"][2]["tool_calls"][0], "id": "other"}]
    assert not any(line.startswith("V12") for line in replay(made, made=made))
    assert any(line.startswith("V12") for line in replay({**made, "tool_calls": bare}, made=made))


def test_readable_reasoning_may_be_left_out_but_not_carried_elsewhere() -> None:
    made = {**PLAIN, "reasoning_content": "2+3"}
    assert replay(PLAIN, made=made) == []
    assert replay(made, made=made) == []
    assert len(replay(made, made=made, to="other")) == 1


def test_messages_that_nobody_handed_out_need_no_state() -> None:
    assert replay({"role": "assistant", "content": "seeded"}) == []
