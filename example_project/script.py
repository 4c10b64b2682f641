"""The demo's model: a few rules instead of a language model, so that no key and no network is needed.

It keeps nothing between two requests, as a real model keeps nothing: what to say next follows from the messages it is
sent. That is why a conversation survives the death of the process that asked.

    python -m turnkit_django.testing.model_server example_project.script:help_desk
"""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass
from typing import Any

from turnkit_django.testing.script import ScriptRequest, call, text

_NAMED_ORDER = re.compile(r"(?:order|number|no\.|#)\s*(?:number|no\.|#)?\s*(\d{1,9})\b", re.IGNORECASE)
_ANY_ORDER = re.compile(r"\b(\d{4,9})\b(?![.,]\d)")
_AMOUNT = re.compile(r"\b(\d{1,6}[.,]\d\d)\b")
_WANTS_MONEY = re.compile(
    r"refund|money|reimburse|pa(?:y|id) (?:it )?back|return|br[oe]ke|damaged|cracked|defect", re.I
)
_WANTS_LIST = re.compile(
    r"\b(?:my|all|list|show|which|what)\b[^.!?]*\borders\b|\bwhat (?:did|have) I (?:buy|bought|order)", re.I
)
_ASKS_WHO = re.compile(
    r"\bwhat (?:can|do|could) you\b|\bwhat else\b|\bhow (?:can|do) you\b|\bwho are you\b|\bhelp\b"
    r"|\bare you (?:an? |real|there|human|chat)|\b(?:AI|bot|chatgpt|language model)\b",
    re.I,
)
_ABOUT_ORDERS = re.compile(r"\b(?:orders?|ordered|parcel|package|deliver(?:y|ed)?|ship(?:ped)?|invoice)\b", re.I)
_THANKS = re.compile(r"\b(?:thanks?|thank you|thx|bye|goodbye)\b", re.I)
_PONDERS = re.compile(r"\bthink about\b", re.I)
_GREETING = re.compile(r"\s*(?:hello|hi|hey|good (?:morning|afternoon|evening|day))\b[^?]*", re.I)

_PONDER_SECONDS = 15  # time to press Cancel
_pondered = threading.Event()  # nobody sets it

_WHICH = "Which order is it about? Its number is on the invoice; write “my orders” if you do not have it at hand."
_ABLE = "I can look up an order by its number, list your orders, and refund an order that arrived broken."
_WHO = f"I am the demo's script, not a language model. {_ABLE} Try: “Where is order 1002?”"
_LOST = (
    f"I am sorry, I did not understand that: I am the demo's script, not a language model. {_ABLE} "
    "With DEMO_MODEL set, a real model answers in my place."
)


@dataclass(frozen=True)
class _Ticket:
    """What the customer wrote last, with what it goes on from, and what the tools have answered since, by tool."""

    text: str
    answers: dict[str, dict[str, Any]]
    earlier: str = ""

    @property
    def order_number(self) -> int | None:
        found = _number_in(self.text)
        if found is None and self.wants_money and not self.wants_list:
            return _number_in(self.earlier)  # "Please refund it": the order that was spoken of
        return found

    @property
    def amount(self) -> str | None:
        """The amount that the customer names."""
        found = _AMOUNT.search(self.text)
        return found[1].replace(",", ".") if found else None

    @property
    def wants_money(self) -> bool:
        return bool(_WANTS_MONEY.search(self.text))

    @property
    def wants_list(self) -> bool:
        return bool(_WANTS_LIST.search(self.text))


def help_desk(request: ScriptRequest) -> dict[str, Any]:
    """The next answer: a tool call, or the text that ends the turn."""
    ticket = _read(request.messages)
    if _PONDERS.search(ticket.text) and not ticket.answers:
        _pondered.wait(_PONDER_SECONDS)
    if ticket.order_number is None:
        return _without_order(ticket)
    order = ticket.answers.get("lookup_order")
    if order is None:
        return call("lookup_order", {"order_number": ticket.order_number})
    if "error" in order:
        return text(
            f"I am sorry, I find no order {ticket.order_number} of yours. Please check the number on the invoice, "
            "or write “my orders” to see them."
        )
    if not ticket.wants_money:
        return text(f"Your order {order['order_number']}, the {order['item']}, is {order['status']}.")
    return _refund(ticket, order)


def _without_order(ticket: _Ticket) -> dict[str, Any]:
    words = ticket.text
    if ticket.wants_list:
        return _orders(ticket)
    if ticket.wants_money or _ABOUT_ORDERS.search(words) or not words.strip():
        return text(_WHICH)
    if _ASKS_WHO.search(words):
        return text(_WHO)
    if _THANKS.search(words):
        return text("You are welcome. Write again whenever you need something.")
    if _PONDERS.search(words):
        return text(f"I have thought about it as long as a script can. {_ABLE}")
    if _GREETING.fullmatch(words):
        return text(f"Hello! {_ABLE} What can I do for you?")
    return text(_LOST)


def _orders(ticket: _Ticket) -> dict[str, Any]:
    found = ticket.answers.get("list_orders")
    if found is None:
        return call("list_orders", {})
    if not found.get("orders"):
        return text("I find no orders of yours.")
    lines = [f"- {each['order_number']}, {each['item']}: {each['status']}" for each in found["orders"]]
    return text("\n".join(["Your orders:", *lines, *([_WHICH] if ticket.wants_money else [])]))


def _refund(ticket: _Ticket, order: dict[str, Any]) -> dict[str, Any]:
    number, item = order["order_number"], order["item"]
    refund = ticket.answers.get("refund")
    if refund is None and order["refunded"] == order["total"]:
        return text(f"Order {number}, the {item}, was refunded in full already: {order['total']} {order['currency']}.")
    if refund is None:
        amount = ticket.amount or order["total"]
        return call(
            "refund", {"order_number": number, "amount": amount, "reason": f"The customer wrote: {ticket.text}"}
        )
    if "error" in refund:
        return text(f"I am sorry, I could not refund order {number}: {refund['error']}.")
    money = f"{refund['amount']} {refund['currency']}"
    if "add_note" not in ticket.answers:
        return call("add_note", {"text": f"Refunded {money} of order {number} ({item})."})
    return text(
        f"I am sorry about the {item}. I have refunded {money} for order {number}; "
        "the money will be back on your account within three days."
    )


def _read(messages: list[dict[str, Any]]) -> _Ticket:
    asked = [place for place, message in enumerate(messages) if message["role"] == "user"]
    if not asked:
        return _Ticket("", {})
    names: dict[str, str] = {}
    answers: dict[str, dict[str, Any]] = {}
    for message in messages[asked[-1] + 1 :]:
        names |= {made["id"]: made["function"]["name"] for made in message.get("tool_calls") or []}
        if message["role"] == "tool":
            answers[names[message["tool_call_id"]]] = _json(message["content"])
    said = [_words(messages[place]["content"]) for place in asked]
    first = len(asked) - 1
    # An answer to that question says what is wanted only together with what was asked before it.
    while first and _words(messages[asked[first] - 1].get("content")).endswith(_WHICH):
        first -= 1
    # Of what was spoken of earlier, the latest comes first.
    return _Ticket("\n".join(said[first:]), answers, earlier="\n".join(reversed(said[:first])))


def _number_in(text: str) -> int | None:
    found = _NAMED_ORDER.search(text) or _ANY_ORDER.search(text)
    return int(found[1]) if found else None


def _words(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or [])


def _json(content: Any) -> dict[str, Any]:
    answer = json.loads(_words(content))
    return answer if isinstance(answer, dict) else {"result": answer}
