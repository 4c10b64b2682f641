import json
from typing import Any

import pytest

from example_project import script
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Where is my parcel?", "Which order"),
        ("Can you help me with my order?", "Which order"),
        ("My cup arrived broken", "Which order"),
        ("Hello!", "What can I do for you?"),
        ("Good morning, nice to meet you", "What can I do for you?"),
        ("Hello, what can you do?", "I am the demo's script, not a language model. I can"),
        ("Are you a human?", "I am the demo's script, not a language model. I can"),
        ("help", "I am the demo's script, not a language model. I can"),
        ("Thank you!", "You are welcome"),
        ("What is the capital of France?", "I did not understand that: I am the demo's script, not a language model"),
        ("I paid 1000.50 too much", "I did not understand that"),
        ("你好", "I did not understand that"),
    ],
)
def test_a_free_question_gets_an_honest_answer(text: str, said: str) -> None:
    assert said in help_desk(request(text))["text"]


def test_thinking_happens_once_a_turn_and_in_the_time_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(script._pondered, "wait", waits.append)

    asked = help_desk(request("Think about order 1001"))
    told = help_desk(request("Think about order 1001", ("lookup_order", ORDER)))

    assert (asked["call"][0], waits) == ("lookup_order", [15])
    assert "is shipped" in told["text"]
    assert "I have thought about it" in help_desk(request("Think about it, please."))["text"]


@pytest.mark.parametrize(
    "text", ["What are my orders?", "my orders", "Show me all my orders, please.", "What did I buy?"]
)
def test_orders_are_listed(text: str) -> None:
    orders = [{"order_number": 1001, "item": "blue teapot", "status": "delivered"}]

    assert help_desk(request(text)) == {"call": ["list_orders", {}, None]}
    listed = help_desk(request(text, ("list_orders", {"orders": orders})))
    assert listed == {"text": "Your orders:\n- 1001, blue teapot: delivered"}
    assert "no orders" in help_desk(request(text, ("list_orders", {"orders": []})))["text"]


def talk(*said: str) -> ScriptRequest:
    """Customer and help desk in turn; the customer spoke last."""
    roles = ("user", "assistant")
    return ScriptRequest({"messages": [{"role": roles[place % 2], "content": each} for place, each in enumerate(said)]})


def test_the_answer_to_its_question_completes_what_was_asked() -> None:
    which = help_desk(request("My teapot broke"))["text"]
    orders = [{"order_number": 1001, "item": "blue teapot", "status": "delivered"}]
    listed = help_desk(talk("My teapot broke", which, "my orders"))
    assert listed["call"][0] == "list_orders"

    asked = talk("My teapot broke", which, "1001")
    found = [*asked.body["messages"], *request("", ("lookup_order", ORDER)).body["messages"][2:]]

    assert help_desk(asked)["call"][1] == {"order_number": 1001}
    assert help_desk(ScriptRequest({"messages": found}))["call"][0] == "refund"
    again = request("I want a refund, what are my orders?", ("list_orders", {"orders": orders}))
    assert help_desk(again)["text"].endswith(which)


def test_a_refund_without_a_number_is_for_the_order_that_was_spoken_of() -> None:
    asked = talk("Where is order 1001?", "It is delivered.", "And order 1002?", "It is shipped.", "Please refund it.")

    assert help_desk(asked)["call"][1] == {"order_number": 1002}


def test_an_order_that_was_refunded_in_full_is_not_refunded_again() -> None:
    refunded = ORDER | {"refunded": ORDER["total"]}

    assert "was refunded in full already" in help_desk(request("Refund 1001", ("lookup_order", refunded)))["text"]


def test_a_question_is_answered_with_the_state_of_the_order() -> None:
    assert help_desk(request("Where is order 1001?", ("lookup_order", ORDER))) == {
        "text": "Your order 1001, the blue teapot, is shipped."
    }


def test_an_unknown_order_ends_the_turn() -> None:
    answer = help_desk(request("refund order 9", ("lookup_order", {"error": "the customer has no order 9"})))

    assert "I find no order 9 of yours" in answer["text"]


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
