from __future__ import annotations

from turnkit_django.core.requests import ModelRequest, ToolSpec


def test_a_request_names_its_tools() -> None:
    schema = {"type": "object", "properties": {}}
    request = ModelRequest(model="m", messages=(), tools=(ToolSpec("a", "", schema), ToolSpec("b", "", schema)))
    assert request.tool_names == ["a", "b"]
    assert ModelRequest(model="m", messages=()).tool_names == []
