import pytest

from tests.testapp.agents import helper
from tests.testapp.models import Effect
from turnkit_django.testing import assert_clean, call, text


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["safe", "unsafe"])
def test_a_submitted_turn_completes(turnkit_model, turnkit_drain, name):
    model = turnkit_model([call(name, {"n": 3}), text("done it")])
    conversation = helper.conversation()
    turn = conversation.submit("please")
    turnkit_drain()
    turn.refresh_from_db()
    assert (turn.status, turn.output_text) == ("completed", "done it"), turn.error
    assert Effect.objects.count() == 1
    assert_clean(model=model)


@pytest.mark.django_db
def test_ask_works_in_a_test_transaction(turnkit_model):
    model = turnkit_model([call("unsafe", {"n": 3}), text("done it")])
    turn = helper.conversation().ask("please")
    assert (turn.status, turn.output_text) == ("completed", "done it"), turn.error
    assert_clean(model=model)
