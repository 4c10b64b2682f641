"""What the page about turns says of rows that are gone and of turns that have ended."""

from decimal import Decimal

import pytest

from tests.testapp.agents import helper
from turnkit_django.core.usage import Usage
from turnkit_django.errors import InputError, StateError
from turnkit_django.models import Conversation
from turnkit_django.testing import text

pytestmark = pytest.mark.django_db


def test_a_turn_that_has_ended_is_given_back_as_it_is(turnkit_model):
    model = turnkit_model([text("hi")])
    answered, cancelled = helper.conversation().ask("please"), helper.conversation().submit("please").cancel()

    assert (answered.run().status, answered.output_text) == ("completed", "hi")
    assert [verb().status for verb in (cancelled.submit, cancelled.run)] == ["cancelled", "cancelled"]
    assert len(model.requests) == 1
    with pytest.raises(StateError, match="was never submitted"):
        answered.submit()


def test_an_object_that_was_deleted_has_no_verbs_any_more():
    conversation = helper.conversation()
    conversation.delete()

    for verb in (conversation.submit, conversation.ask, conversation.prepare, conversation.say):
        with pytest.raises(InputError, match="the conversation is not saved"):
            verb("please")


def test_a_conversation_that_is_gone_has_used_and_cost_nothing(turnkit_model):
    turnkit_model([text("hi")])
    conversation = helper.conversation()
    conversation.ask("please")
    assert conversation.usage.total_tokens
    Conversation.objects.filter(pk=conversation.pk).delete()

    assert (conversation.usage, conversation.cost) == (Usage(), Decimal(0))
