import json
from typing import Any

import pytest

from example_project.demo.outcome import Check
from example_project.script import help_desk
from turnkit_django.testing.script import ScriptRequest

ORDER = {
    "order_number": 1001,
    "item": "blue teapot",
    "status": "shipped",
    "total": "49.90",
    "refunded": "0.00",
    "currency": "EUR",
}
REFUND = {"refund": 1, "order_number": 1001, "amount": "49.90", "currency": "EUR"}
REFUSED = {"error": "10.00 EUR is too much"}


def request(text: str, *answered: tuple[str, dict[str, Any]]) -> ScriptRequest:
    """A ticket, and the tools that were called for it with what they answered."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Help."}, {"role": "user", "content": text}]
    for number, (tool, answer) in enumerate(answered):
        call = {"id": f"call_{number}", "type": "function", "function": {"name": tool, "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(answer)})
    return ScriptRequest({"model": "m", "messages": messages})


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("Where is order 1001?", 1001),
        ("I paid 250 EUR for order number 1002", 1002),
        ("order no. 7 is late", 7),
        ("#1003 please", 1003),
        ("About 2001: I am waiting", 2001),
    ],
)
def test_an_order_that_is_named_is_looked_up(text: str, number: int) -> None:
    assert help_desk(request(text)) == {"call": ["lookup_order", {"order_number": number}, None]}


@pytest.mark.parametrize("text", ["Hello!", "Where is my parcel?", "I paid 1000.50 too much", "你好"])
def test_without_an_order_number_it_asks_for_one(text: str) -> None:
    assert "Which order" in help_desk(request(text))["text"]


def test_a_question_is_answered_with_the_state_of_the_order() -> None:
    assert help_desk(request("Where is order 1001?", ("lookup_order", ORDER))) == {
        "text": "Your order 1001, the blue teapot, is shipped."
    }


def test_an_unknown_order_ends_the_turn() -> None:
    answer = help_desk(request("refund order 9", ("lookup_order", {"error": "the customer has no order 9"})))

    assert "the customer has no order 9" in answer["text"]


@pytest.mark.parametrize(("text", "amount"), [("Refund order 1001", "49.90"), ("refund 10,50 of order 1001", "10.50")])
def test_money_is_refunded_in_full_or_as_asked(text: str, amount: str) -> None:
    tool, arguments, _ = help_desk(request(text, ("lookup_order", ORDER)))["call"]

    assert (tool, arguments["order_number"], arguments["amount"]) == ("refund", 1001, amount)


def test_after_the_refund_come_a_note_and_an_answer_with_the_amount() -> None:
    made = [("lookup_order", ORDER), ("refund", REFUND)]
    note = help_desk(request("Refund order 1001", *made))
    answer = help_desk(request("Refund order 1001", *made, ("add_note", {"error": "outcome unknown"})))

    assert note["call"][0] == "add_note"
    assert "49.90 EUR" in answer["text"]


def test_a_refused_refund_is_explained() -> None:
    answer = help_desk(request("Refund order 1001", ("lookup_order", ORDER), ("refund", REFUSED)))

    assert "too much" in answer["text"]


def test_an_earlier_ticket_of_the_conversation_is_not_answered_again() -> None:
    earlier = request("Refund order 1001", ("lookup_order", ORDER)).body["messages"]
    later = [{"role": "user", "content": [{"type": "text", "text": "And order 1002?"}]}]

    assert help_desk(ScriptRequest({"messages": [*earlier, *later]}))["call"][1] == {"order_number": 1002}


def test_a_request_without_a_ticket_gets_a_polite_answer() -> None:
    assert "Which order" in help_desk(ScriptRequest({"messages": []}))["text"]


def test_a_check_says_whether_it_holds() -> None:
    assert Check("It holds", "because", holds=True).row() == ["ok", "It holds", "because"]
    assert Check("It holds", "because", holds=False).row() == ["FAILED", "It holds", "because"]
