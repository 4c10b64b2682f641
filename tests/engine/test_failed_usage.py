"""Tokens reported beside an error inside HTTP 200 count, and what they cost is unknown."""

from decimal import Decimal

import pytest

from tests.testapp.agents import helper
from turnkit_django.errors import TransientModelError
from turnkit_django.testing import assert_clean, drain, raw, text


def overloaded(code: int) -> dict[str, object]:
    usage = {"prompt_tokens": 7, "completion_tokens": 0, "total_tokens": 7}
    return raw({"error": {"message": "overloaded", "code": code}, "choices": [], "usage": usage})


@pytest.mark.django_db(transaction=True)
def test_usage_of_a_parked_call_counts(turnkit_model):
    model = turnkit_model([overloaded(529), text("hello")])
    turn = helper.conversation().submit("Hi")
    drain()
    turn.refresh_from_db()
    assert (turn.status, turn.usage.input_tokens, turn.cost) == ("completed", 107, None)
    assert turn.iterations == 1
    assert_clean(model=model)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("problem", "unknown"), [("no answer came", 1), ("HTTP 503", 0)])
def test_a_call_that_was_sent_and_never_answered_makes_the_bill_unknown(turnkit_model, problem, unknown):
    status = None if unknown else 503
    model = turnkit_model([TransientModelError(problem, status_code=status, retry_after=0), text("hello")])
    turn = helper.conversation().submit("Hi")
    drain()
    turn.refresh_from_db()
    assert (turn.status, turn.usage.unknown_attempts, turn.iterations) == ("completed", unknown, 1 + unknown)
    assert turn.cost == (None if unknown else Decimal("0.001"))
    assert_clean(model=model)


@pytest.mark.django_db(transaction=True)
def test_usage_of_a_call_that_failed_for_good_counts(turnkit_model):
    model = turnkit_model([overloaded(403)])
    turn = helper.conversation().ask("Hi")
    assert (turn.status, turn.error["type"], turn.usage.input_tokens) == ("failed", "PermanentModelError", 7)
    assert_clean(model=model)
