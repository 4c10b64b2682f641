from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnkit_django.clients.chat import RequestForm, request_body
from turnkit_django.core.content import Part, call_key, result_part, text_part
from turnkit_django.core.requests import ChatMessage, ModelRequest, ToolSpec
from turnkit_django.engine.projection import project
from turnkit_django.store.reads import StoredMessage
from turnkit_django.testing.strict import check_request

PING = ToolSpec("ping", "Pings.", {"type": "object", "properties": {}})
OWN = "turn_own"


def stored(
    sequence: int, role: str, *parts: Part | str, turn: str | None = None, anchor: int | None = None, **more: Any
) -> StoredMessage:
    return StoredMessage(
        sequence=sequence,
        turn_id=turn,
        anchor=sequence if anchor is None else anchor,
        place=more.pop("place", 0 if turn is None else 1),
        role=role,
        parts=[text_part(part) if isinstance(part, str) else part for part in parts],
        provider="",
        finish_reason=more.pop("finish_reason", ""),
    )


def call(received: str, *, n: int = 0, name: str = "ping", arguments: str = "{}", iteration: int = 1) -> Part:
    key = call_key(received, iteration=iteration, ordinal=n)
    return {"type": "tool_call", "id": received, "key": key, "name": name, "arguments": arguments}


def result(received: str, text: str, *, n: int = 0, iteration: int = 1) -> Part:
    key = call_key(received, iteration=iteration, ordinal=n)
    return result_part(call_id=received, key=key, text=text, error=False)


def projected(messages: Sequence[StoredMessage], *, own: str = OWN, id_length: int | None = None) -> list[ChatMessage]:
    """The messages, after the strict rules have seen the request that is made of them."""
    found = project(messages, own_turn_id=own, id_length=id_length)
    form = RequestForm(call_id_length=id_length)
    body = request_body(ModelRequest("acme/m", tuple(found), tools=(PING,)), provider="acme", form=form)
    assert check_request(body, call_id_pattern=form.call_id_pattern) == []
    return found


def words(messages: Sequence[ChatMessage]) -> list[str | None]:
    return [message["content"] for message in messages]


def ids(messages: Sequence[ChatMessage]) -> list[str]:
    return [call["id"] for message in messages for call in message.get("tool_calls", [])]


# Order


def test_ended_turns_stand_together_in_lane_order_and_the_own_trigger_comes_last():
    messages = [
        stored(1, "user", "A?", turn="a", anchor=3, place=1),
        stored(2, "user", "B?", turn="b", anchor=5, place=2),
        stored(3, "user", "own?", turn=OWN, anchor=7, place=3),
        stored(4, "assistant", call("c1"), turn="a", anchor=3, place=1),
        stored(5, "tool", result("c1", "pong"), turn="a", anchor=3, place=1),
        stored(6, "assistant", "A!", turn="a", anchor=3, place=1),
        stored(7, "assistant", "B!", turn="b", anchor=6, place=2),
    ]
    assert words(projected(messages)) == ["A?", None, "pong", "A!", "B?", "B!", "own?"]
    assert words(projected(messages[::-1])) == words(projected(messages))


def test_what_was_said_stands_between_the_turns_that_did_and_did_not_see_it():
    messages = [
        stored(1, "user", "A?", turn="a", anchor=2),
        stored(2, "user", "said before A was claimed"),
        stored(3, "user", "own?", turn=OWN, anchor=6, place=2),
        stored(4, "user", "said while A ran"),
        stored(5, "assistant", "A!", turn="a", anchor=2),
        stored(6, "user", "said after A"),
    ]
    expected = ["said before A was claimed", "A?", "A!", "said while A ran", "said after A", "own?"]
    assert words(projected(messages)) == expected


def test_results_stand_next_to_their_calls_in_call_order_whenever_they_were_stored():
    messages = [
        stored(1, "user", "own?", turn=OWN, anchor=1),
        stored(2, "assistant", "Both.", call("c1"), call("c2", n=1), turn=OWN, anchor=1),
        stored(3, "tool", result("c2", "two", n=1), turn=OWN, anchor=1),
        stored(4, "user", "said meanwhile"),
        stored(5, "tool", result("c1", "one"), turn=OWN, anchor=1),
    ]
    found = projected(messages)
    assert words(found) == ["said meanwhile", "own?", "Both.", "one", "two"]
    assert [message.get("tool_call_id") for message in found] == [None, None, None, "c1", "c2"]


def test_a_turn_that_was_cancelled_before_it_ran_keeps_its_place_in_the_lane():
    messages = [
        stored(1, "user", "first", turn="a", anchor=2, place=1),
        stored(2, "user", "second", turn="b", anchor=2, place=2),
        stored(3, "user", "own?", turn=OWN, anchor=3, place=3),
    ]
    assert words(projected(messages)) == ["first", "second", "own?"]


# Repair


def test_a_call_without_a_result_is_told_as_unknown():
    messages = [
        stored(1, "user", "A?", turn="a"),
        stored(2, "assistant", call("c1"), call("c2", n=1), turn="a"),
        stored(3, "tool", result("c2", "two", n=1), turn="a"),
        stored(4, "user", "own?", turn=OWN),
    ]
    unknown = '{"error": "No result of this call was stored. Whether it took effect is unknown."}'
    assert words(projected(messages)) == ["A?", None, unknown, "two", "own?"]


def test_a_result_is_never_taken_from_another_turn():
    messages = [
        stored(1, "user", "A?", turn="a"),
        stored(2, "assistant", call("c1"), turn="a"),
        stored(3, "tool", result("c1", "of a"), turn="a"),
        stored(4, "user", "own?", turn=OWN, place=2),
        stored(5, "assistant", call("c1"), turn=OWN, place=2),
    ]
    assert "of a" not in (words(projected(messages))[-1] or "")


def test_a_result_without_its_call_and_blank_messages_are_left_out():
    messages = [
        stored(1, "user", " \n", turn="a"),
        stored(2, "tool", result("c1", "lost"), turn="a"),
        stored(3, "assistant", "", turn="a"),
        stored(4, "assistant", turn="a"),
        stored(5, "user", "own?", turn=OWN),
    ]
    assert words(projected(messages)) == ["own?"]


def test_an_empty_result_is_sent_as_words():
    messages = [
        stored(1, "user", "own?", turn=OWN),
        stored(2, "assistant", call("c1"), turn=OWN),
        stored(3, "tool", result("c1", ""), turn=OWN),
    ]
    assert words(projected(messages))[-1] == "(no output)"


def test_a_conversation_that_begins_with_an_answer_gets_a_first_user_message():
    found = projected([stored(1, "assistant", "Hello, I am here."), stored(2, "user", "own?", turn=OWN)])
    assert [message["role"] for message in found] == ["user", "assistant", "user"]


@pytest.mark.parametrize("messages", [[], [stored(1, "user", "hi", turn="a"), stored(2, "assistant", "ho", turn="a")]])
def test_a_request_never_ends_with_an_answer_and_is_never_empty(messages: list[StoredMessage]):
    assert projected(messages)[-1]["role"] == "user"


def test_an_answer_loses_the_white_space_at_its_end():
    messages = [stored(1, "user", "A?"), stored(2, "assistant", "All done. \n"), stored(3, "user", "own?")]
    assert words(projected(messages)) == ["A?", "All done.", "own?"]


def test_a_cut_answer_is_followed_by_the_wish_for_a_shorter_one():
    messages = [
        stored(1, "user", "own?", turn=OWN),
        stored(2, "assistant", "half a sen", turn=OWN, finish_reason="length"),
    ]
    found = projected(messages)
    assert (found[-1]["role"], "cut off before its end" in (found[-1]["content"] or "")) == ("user", True)


def test_a_cut_answer_with_calls_is_explained_by_their_results_alone():
    messages = [
        stored(1, "user", "own?", turn=OWN),
        stored(2, "assistant", call("c1"), turn=OWN, finish_reason="length"),
        stored(3, "tool", result("c1", "not run: cut off"), turn=OWN),
    ]
    assert words(projected(messages)) == ["own?", None, "not run: cut off"]


# Calls as they are sent back


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"n": 1}', '{"n": 1}'),
        ('{"n": 1', "{}"),
        ("", "{}"),
        (" \n", "{}"),
        ("null", "{}"),
        ("[1]", "{}"),
        ("5", "{}"),
        ('{"n": NaN}', "{}"),
        ('{"n": -Infinity}', "{}"),
        ('{"a": 1}{"a": 2}', "{}"),
        ('{"n": ' + "[" * 100_000, "{}"),
    ],
    ids=lambda text: str(text)[:12],
)
def test_arguments_are_sent_back_as_they_came_if_they_are_an_object(arguments: str, sent: str):
    messages = [stored(1, "user", "own?", turn=OWN), stored(2, "assistant", call("c1", arguments=arguments), turn=OWN)]
    found = projected(messages)
    assert found[1]["tool_calls"][0]["function"]["arguments"] == sent


@pytest.mark.parametrize(
    ("name", "sent"),
    [("ping", "ping"), ("", "unnamed"), ("do it!", "do_it_"), ("é" * 3, "___"), ("x" * 65, "x" * 64)],
)
def test_a_name_that_no_provider_takes_is_made_one(name: str, sent: str):
    messages = [stored(1, "user", "own?", turn=OWN), stored(2, "assistant", call("c1", name=name), turn=OWN)]
    assert projected(messages)[1]["tool_calls"][0]["function"]["name"] == sent


def test_safe_ids_are_sent_back_as_received():
    messages = [stored(1, "user", "own?"), stored(2, "assistant", call("call_a-1"), call("x" * 40, n=1))]
    assert ids(projected(messages)) == ["call_a-1", "x" * 40]


UNSAFE = ["", "x" * 41, "functions.search:0", "id with space", "ü", "a\nb", "x" * 5000]


def batch(turn: str, *received: str, at: int = 1, **more: Any) -> list[StoredMessage]:
    """A turn that made these calls in one answer, and had no results."""
    calls = [call(each, n=n) for n, each in enumerate(received)]
    question = stored(at, "user", f"{turn}?", turn=turn, **more)
    return [question, stored(at + 1, "assistant", *calls, turn=turn, **more)]


def test_unsafe_ids_are_replaced_by_safe_ones_that_differ():
    sent = ids(projected(batch("a", *UNSAFE, *UNSAFE)))
    assert len(set(sent)) == 2 * len(UNSAFE)
    assert all(re.fullmatch(r"call_[0-9a-f]{32}", each) for each in sent)


def test_an_id_that_is_used_twice_in_one_answer_is_sent_once():
    sent = ids(projected(batch("a", "same", "same", "same")))
    assert (sent[0], len(set(sent))) == ("same", 3)


@pytest.mark.parametrize("received", ["", "call_0", "x" * 5000])
def test_ids_that_repeat_from_turn_to_turn_stay_unique(received: str):
    """Their keys are equal too: the same id at the same place of the same model call of each turn."""
    turns = [batch(f"t{n}", received, at=2 * n, place=n) for n in range(1, 5)]
    assert len(set(ids(projected([message for turn in turns for message in turn])))) == 4


def test_a_model_cannot_take_the_id_that_another_call_will_be_given():
    made = ids(projected(batch("a", "other", "")))[1]
    assert len(set(ids(projected(batch("a", made, ""))))) == 2


@pytest.mark.parametrize("length", [6, 9, 40])
def test_ids_of_a_wanted_length_are_letters_and_digits_and_differ(length: int):
    turns = [batch(f"t{n}", *UNSAFE, "safe", "safe", at=2 * n, place=n) for n in range(1, 4)]
    sent = ids(projected([message for turn in turns for message in turn], id_length=length))
    assert len(set(sent)) == len(sent) == 27
    assert all(re.fullmatch(rf"[A-Za-z0-9]{{{length}}}", each) for each in sent)


# Provider state


def bodies(provider: str) -> dict[str, Any]:
    state = json.dumps({"thinking_blocks": [{"signature": "s=="}], "tool_calls": [{"signature": "t"}]})
    part: Part = {"type": "provider", "kind": "anthropic", "data": state}
    messages = [stored(1, "user", "own?"), stored(2, "assistant", "So.", call("c1"), part)]
    request = ModelRequest("m", tuple(projected(messages)), tools=(PING,))
    body: dict[str, Any] = request_body(request, provider=provider)["messages"][1]
    return body


def test_provider_state_is_sent_unchanged_to_its_provider():
    body = bodies("anthropic")
    assert body["thinking_blocks"] == [{"signature": "s=="}]
    assert body["tool_calls"][0]["signature"] == "t"


def test_provider_state_is_sent_to_no_other_provider():
    assert set(bodies("openai")) == {"role", "content", "tool_calls"}
    assert set(bodies("openai")["tool_calls"][0]) == {"id", "type", "function"}


# Whatever is stored

TEXTS = st.sampled_from(["hi", "", "  \n", "ünïcode 🎉", "x" * 200])
IDS = st.sampled_from(["", "c1", "call_0", "x" * 41, "a.b:0", "functions.search:0"]) | st.text(max_size=45)
ARGUMENTS = st.sampled_from(["{}", '{"n": 1}', "", "null", "{", '{"a":1}{"b":2}', '{"n": NaN}']) | st.text(max_size=9)


@st.composite
def turns(draw: st.DrawFn) -> list[StoredMessage]:
    """A conversation: turns with texts and calls, some without results, and what was said between them."""
    messages: list[StoredMessage] = []
    for number in range(draw(st.integers(0, 4))):
        owner = draw(st.sampled_from([f"t{number}", None]))
        anchor = len(messages) + 1
        for iteration in range(draw(st.integers(0, 3))):
            where: dict[str, Any] = {"turn": owner, "anchor": anchor, "place": number if owner else 0}
            received = draw(st.lists(IDS, max_size=3))
            calls = [
                call(each, n=n, iteration=iteration, arguments=draw(ARGUMENTS), name=draw(TEXTS))
                for n, each in enumerate(received)
            ]
            role = draw(st.sampled_from(["user", "assistant"]))
            parts = calls if role == "assistant" else []
            finish = draw(st.sampled_from(["", "length", "stop"]))
            content = [text_part(draw(TEXTS)), *parts]
            messages.append(stored(len(messages) + 1, role, *content, finish_reason=finish, **where))
            for n, each in enumerate(received):
                if draw(st.booleans()):
                    told = result(each, draw(TEXTS), n=n, iteration=iteration)
                    messages.append(stored(len(messages) + 1, "tool", told, **where))
    return messages


@settings(max_examples=150, deadline=None)
@given(turns(), st.sampled_from([None, 9]))
def test_whatever_is_stored_makes_a_request_that_the_strictest_provider_takes(messages, length):
    projected(messages, id_length=length)


@settings(max_examples=80, deadline=None)
@given(turns(), st.sampled_from([None, 9]))
def test_ids_stay_the_same_while_a_conversation_grows(messages, length):
    more = [
        *messages,
        *batch("later", "c1", "", at=len(messages) + 1, place=99),
    ]
    before, after = (ids(projected(each, own="later", id_length=length)) for each in (messages, more))
    assert after[: len(before)] == before


def test_results_of_erased_turns_stay_with_the_nearest_call_before_them():
    messages = [
        stored(1, "assistant", call("call_1"), turn=None),
        stored(2, "tool", result("call_1", "first"), turn=None),
        stored(3, "assistant", call("call_1"), turn=None),
        stored(4, "tool", result("call_1", "second"), turn=None),
        stored(5, "user", "own?", turn=OWN),
    ]
    assert [message["content"] for message in projected(messages) if message["role"] == "tool"] == ["first", "second"]
