from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from turnkit_django.core.events import CATALOGUE, Event, ModelRequested, TurnCompleted, receiver_problem
from turnkit_django.core.usage import Usage

AT = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
COMMON = {"turn_id": "turn_1", "conversation_id": "conv_1", "agent_name": "helper", "at": AT}
SAID = COMMON | {"at": "2026-05-04T03:02:01+00:00"}


def test_an_event_as_json_has_its_type_first_and_money_as_text():
    event = TurnCompleted(**COMMON, output_chars=4, usage=Usage(input_tokens=3), cost=Decimal("0.00000012"))

    counts = {"input_tokens": 3, "output_tokens": 0, "cached_tokens": 0, "cache_write_tokens": 0, "thinking_tokens": 0}
    usage = {**counts, "unknown_attempts": 0, "total_tokens": 3}
    expected = {"type": "turn.completed", **SAID, "usage": usage, "cost": "0.00000012", "output_chars": 4}
    assert event.as_dict() == expected
    assert next(iter(event.as_dict())) == "type"


def test_what_is_not_known_is_null_and_names_are_a_list():
    counts = {"iteration": 1, "message_count": 1, "prompt_chars": 6}
    event = ModelRequested(**COMMON, model="m", request_id="r", tool_names=("a", "b"), **counts)

    assert event.as_dict() == {"type": "model.requested", **SAID, "model": "m", "request_id": "r", **counts} | {
        "tool_names": ["a", "b"]
    }
    assert TurnCompleted(**COMMON, output_chars=0, usage=Usage(), cost=None).as_dict()["cost"] is None


def test_an_event_that_holds_what_json_does_not_know_says_so():
    @dataclass(frozen=True, kw_only=True)
    class Odd(Event):
        type = "odd"
        thing: object

    with pytest.raises(TypeError, match=r"an event holds <object object at .* no JSON form"):
        Odd(**COMMON, thing=object()).as_dict()


def test_events_are_found_by_type_and_never_change():
    assert all(kind.type == name for name, kind in CATALOGUE.items())
    event = TurnCompleted(**COMMON, output_chars=0, usage=Usage(), cost=None)
    with pytest.raises(AttributeError):
        event.cost = Decimal(1)


class Writer:
    def __call__(self, event: Event) -> None: ...


class AsyncWriter:
    async def __call__(self, event: Event) -> None: ...


async def nobody_awaits(event: Event) -> None: ...


@pytest.mark.parametrize("receiver", [print, [].append, iter, Writer(), lambda event: None])
def test_a_plain_callable_may_receive_events(receiver: object):
    assert receiver_problem(receiver) == ""


@pytest.mark.parametrize("receiver", [None, "a.path", Writer, AsyncWriter(), nobody_awaits])
def test_a_class_an_async_function_and_what_is_not_callable_may_not(receiver: object):
    assert receiver_problem(receiver) != ""


@pytest.mark.parametrize("receiver", [lambda: None, lambda event, other: None, lambda *, event: None])
def test_what_cannot_be_called_with_one_event_alone_may_not(receiver: object):
    assert receiver_problem(receiver) == "a callable that can be called with one event alone"
