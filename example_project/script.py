"""The demo's model: a few rules instead of a language model, so that no key and no network is needed.

It keeps nothing between two requests, as a real model keeps nothing: what to say next follows from the messages it is
sent. That is why a conversation survives the death of the process that asked.

    python -m turnkit_django.testing.model_server example_project.script:help_desk
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from turnkit_django.testing.script import ScriptRequest, call, text

_NAMED_ORDER = re.compile(r"(?:order|number|no\.|#)\s*(?:number|no\.|#)?\s*(\d{1,9})\b", re.IGNORECASE)
_ANY_ORDER = re.compile(r"\b(\d{4,9})\b(?![.,]\d)")
_AMOUNT = re.compile(r"\b(\d{1,6}[.,]\d\d)\b")
_WANTS_MONEY = re.compile(r"refund|money|reimburse|pay back|return|broke|damaged|cracked|defect", re.IGNORECASE)


@dataclass(frozen=True)
class _Ticket:
    """What the customer wrote last, and what the tools have answered since, by tool."""

    text: str
    answers: dict[str, dict[str, Any]]

    @property
    def order_number(self) -> int | None:
        found = _NAMED_ORDER.search(self.text) or _ANY_ORDER.search(self.text)
        return int(found[1]) if found else None

    @property
    def amount(self) -> str | None:
        """The amount that the customer names."""
        found = _AMOUNT.search(self.text)
        return found[1].replace(",", ".") if found else None

    @property
    def wants_money(self) -> bool:
        return bool(_WANTS_MONEY.search(self.text))


def help_desk(request: ScriptRequest) -> dict[str, Any]:
    """The next answer: a tool call, or the text that ends the turn."""
    ticket = _read(request.messages)
    if ticket.order_number is None:
        return text("Thank you for writing to us. Which order is it about? Its number is on the invoice.")
    order = ticket.answers.get("lookup_order")
    if order is None:
        return call("lookup_order", {"order_number": ticket.order_number})
    if "error" in order:
        return text(f"I am sorry, but {order['error']}. Please check the number on the invoice.")
    if not ticket.wants_money:
        return text(f"Your order {order['order_number']}, the {order['item']}, is {order['status']}.")
    return _refund(ticket, order)


def _refund(ticket: _Ticket, order: dict[str, Any]) -> dict[str, Any]:
    number, item = order["order_number"], order["item"]
    refund = ticket.answers.get("refund")
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
    asked = max((place for place, message in enumerate(messages) if message["role"] == "user"), default=None)
    if asked is None:
        return _Ticket("", {})
    names: dict[str, str] = {}
    answers: dict[str, dict[str, Any]] = {}
    for message in messages[asked + 1 :]:
        names |= {made["id"]: made["function"]["name"] for made in message.get("tool_calls") or []}
        if message["role"] == "tool":
            answers[names[message["tool_call_id"]]] = _json(message["content"])
    return _Ticket(_words(messages[asked]["content"]), answers)


def _words(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _json(content: Any) -> dict[str, Any]:
    answer = json.loads(_words(content))
    return answer if isinstance(answer, dict) else {"result": answer}
