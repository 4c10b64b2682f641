from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DataError, IntegrityError, transaction

from turnkit_django.models import ToolExecution, Turn
from turnkit_django.testing import ScriptedModel, assert_clean, call, text

pytestmark = pytest.mark.django_db

Model = Callable[..., ScriptedModel]


@pytest.fixture
def ask(db: None, turnkit_model: Model, turnkit_drain: Callable[[], int]) -> Callable[..., Turn]:
    """Open a ticket of Ada's, let the model make the calls, and return the ended turn."""
    from example_project.helpdesk.models import Customer
    from example_project.helpdesk.seed import ADA, seed
    from example_project.helpdesk.tickets import open_ticket

    seed()

    def play(*calls: tuple[str, dict[str, Any]]) -> Turn:
        model = turnkit_model([*(call(name, arguments) for name, arguments in calls), text("done")])
        _, turn = open_ticket(Customer.objects.get(email=ADA), "Please.")
        turnkit_drain()
        turn.refresh_from_db()
        assert turn.status == "completed", turn.error
        assert_clean(turn.conversation, model=model)
        return turn

    return play


def outcomes(turn: Turn) -> list[tuple[str, Any]]:
    executions = turn.tool_executions.order_by("ordinal")
    return [(each.status, each.result if each.error is None else each.error["message"]) for each in executions]


def refund_of(number: int, amount: str | float) -> tuple[str, dict[str, Any]]:
    return "refund", {"order_number": number, "amount": amount, "reason": "broken"}


def test_seeding_again_changes_nothing() -> None:
    from example_project.helpdesk.models import Customer, Order
    from example_project.helpdesk.seed import seed

    assert seed() == (2, 4)
    Order.objects.filter(number=1001).update(item="a person's change")

    assert seed() == (0, 0)
    assert (Customer.objects.count(), Order.objects.count()) == (2, 4)
    assert Order.objects.get(number=1001).item == "a person's change"


def test_the_command_says_what_it_added(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("seed_helpdesk")
    call_command("seed_helpdesk")

    assert capsys.readouterr().out.splitlines() == ["added 2 customers and 4 orders", "added 0 customers and 0 orders"]


def test_logins_come_and_go_and_the_customers_stay() -> None:
    from django.contrib.auth import authenticate
    from django.contrib.auth.models import User

    from example_project.helpdesk.models import Customer
    from example_project.helpdesk.seed import ADA, STAFF, remove_logins, seed, seed_logins

    User.objects.create_user("somebody.else")
    seed()
    seed_logins("first")
    user = authenticate(username=ADA, password="first")
    with pytest.raises(ValueError, match=f"without the logins .*, got {ADA}, .*, {STAFF}$"):
        seed_logins("second")
    assert authenticate(username=ADA, password="first") == user
    assert user == Customer.objects.get(email=ADA).user
    assert (user.is_staff, user.is_superuser) == (False, False)

    remove_logins()
    assert [each.username for each in User.objects.all()] == ["somebody.else"]
    assert Customer.objects.get(email=ADA).user is None


def test_the_migrations_describe_the_models() -> None:
    call_command("makemigrations", "helpdesk", check=True, dry_run=True, verbosity=0)


def test_an_order_is_looked_up(ask: Callable[..., Turn]) -> None:
    turn = ask(("lookup_order", {"order_number": 1001}))

    order = {"order_number": 1001, "item": "blue teapot", "status": "delivered", "total": "49.90", "currency": "EUR"}
    assert outcomes(turn) == [("completed", order | {"refunded": "0.00"})]


def test_the_customers_own_orders_are_listed(ask: Callable[..., Turn]) -> None:
    turn = ask(("list_orders", {}))

    assert [order["order_number"] for order in turn.tool_executions.get().result["orders"]] == [1003, 1002, 1001]


@pytest.mark.parametrize("number", [2001, 9999])
def test_an_order_of_somebody_else_is_like_one_that_is_not_there(ask: Callable[..., Turn], number: int) -> None:
    turn = ask(("lookup_order", {"order_number": number}), refund_of(number, "1.00"))

    assert outcomes(turn) == [("failed", f"the customer has no order {number}")] * 2


def test_refunds_add_up_to_the_total_and_no_further(ask: Callable[..., Turn]) -> None:
    from example_project.helpdesk.models import Refund

    turn = ask(refund_of(1001, "40.00"), refund_of(1001, "10.00"), refund_of(1001, 9.9))

    assert outcomes(turn)[1] == ("failed", "10.00 EUR is too much: 9.90 of order 1001 can be refunded")
    assert list(Refund.objects.values_list("amount", flat=True).order_by("pk")) == [Decimal("40.00"), Decimal("9.90")]


@pytest.mark.parametrize("amount", ["0.00", "-5.00", "1.005", "NaN", "a lot"])
def test_an_amount_that_is_no_money_is_refused_before_the_call(ask: Callable[..., Turn], amount: str) -> None:
    turn = ask(refund_of(1001, amount))

    assert turn.tool_executions.get().error["type"] == "ToolValidationError"


def test_the_same_call_twice_pays_once(ask: Callable[..., Turn]) -> None:
    from example_project.helpdesk.models import Refund
    from example_project.helpdesk.tools import refund
    from turnkit_django import ToolContext

    turn = ask(refund_of(1001, "49.90"))
    execution: ToolExecution = turn.tool_executions.get()
    context = ToolContext(turn, execution, turn.conversation, None)

    again = refund(1001, Decimal("49.90"), "broken", context=context)

    assert Refund.objects.get().pk == again["refund"] == execution.result["refund"]


def test_the_database_refuses_a_second_refund_with_the_key(ask: Callable[..., Turn]) -> None:
    from example_project.helpdesk.models import Refund

    ask(refund_of(1001, "1.00"))
    refund = Refund.objects.get()
    refund.pk = None

    with pytest.raises((IntegrityError, DataError)), transaction.atomic():
        refund.save()


def test_notes_are_kept_on_the_ticket(ask: Callable[..., Turn]) -> None:
    turn = ask(("add_note", {"text": "First. "}), ("add_note", {"text": "Second."}))

    assert turn.conversation.tickets.get().notes == "First.\nSecond.\n"


def test_a_conversation_without_a_ticket_gets_nothing(turnkit_model: Model) -> None:
    from example_project.helpdesk.agents import helpdesk

    turnkit_model([call("add_note", {"text": "Hello."}), text("done")])
    turn = helpdesk.conversation().ask("Please.")

    assert outcomes(turn) == [("failed", "this conversation has no ticket")]
