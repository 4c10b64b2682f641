"""`assert_clean`: each rule is broken once, by tampering with rows, and must be told."""

import json
import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db.models import F

from tests.testapp.agents import helper
from turnkit_django.core.usage import Usage
from turnkit_django.models import Conversation, Message, ToolExecution, Turn, Wait
from turnkit_django.models.querysets import ClockTime
from turnkit_django.testing import Crash, assert_clean, call, crash_at, drain, text
from turnkit_django.testing.clients import ScriptedModel

pytestmark = pytest.mark.django_db


def executions() -> list[ToolExecution]:
    return list(ToolExecution.objects.order_by("ordinal"))


def running_without_a_lease() -> None:
    Turn.objects.update(
        status="running",
        completed_at=None,
        claim_token="0" * 32,
        claimed_by="x:1:1",
        claimed_at=ClockTime(),
        lease_expires_at=ClockTime() - timedelta(seconds=1),
    )


def waiting_for_nothing() -> None:
    Turn.objects.update(status="waiting", completed_at=None)


def started_and_forgotten() -> None:
    Turn.objects.update(status="pending", completed_at=None, submitted_at=None)


def dependency_nobody_counts_down() -> None:
    Turn.objects.update(pending_dependencies=1)


def waiter_that_is_not_counted() -> None:
    turn = Turn.objects.get()
    Wait.objects.create(turn=helper.conversation().prepare("later"), target=turn)
    Turn.objects.filter(pk=turn.pk).update(status="waiting", completed_at=None, not_before=ClockTime())


def call_left_open() -> None:
    ToolExecution.objects.filter(pk=executions()[0].pk).update(status="running", completed_at=None)


def result_lost() -> None:
    Message.objects.filter(tool_execution=executions()[0]).update(tool_execution=None)


def execution_lost() -> None:
    Message.objects.filter(tool_execution=executions()[0]).update(tool_execution=None)
    executions()[0].delete()


def usage_wrong() -> None:
    Turn.objects.update(input_tokens=F("input_tokens") + 1)


def maintenance_left() -> None:
    Turn.objects.update(status="waiting", completed_at=None, not_before=ClockTime() - timedelta(seconds=1))


def answered_twice() -> None:
    first = Message.objects.order_by("-sequence")[0]
    Conversation.objects.update(next_sequence=F("next_sequence") + 1)
    Message.objects.create(
        conversation=first.conversation,
        turn=first.turn,
        sequence=first.sequence + 1,
        role="assistant",
        content=first.content,
    )


def answer_differs() -> None:
    Turn.objects.update(output_text="something else")


def failed_with_an_answer() -> None:
    Turn.objects.update(status="failed")


def hole_in_the_numbers() -> None:
    Message.objects.filter(role="assistant", kind="text").update(sequence=F("sequence") + 1)


def next_number_wrong() -> None:
    Conversation.objects.update(next_sequence=99)


RULES: list[tuple[Callable[[], None], str]] = [
    (running_without_a_lease, "C1 {turn} is running, but its lease ended at"),
    (waiting_for_nothing, "C1 {turn} is waiting for nothing"),
    (dependency_nobody_counts_down, "C1 {turn} counts 1 dependencies, but 0 are open"),
    (waiter_that_is_not_counted, "C1 {turn} counts 0 waiters, but there are 1"),
    (started_and_forgotten, "C1 {turn} was started, is pending and was not submitted: nobody will run it"),
    (call_left_open, "C2 {execution} is running in a turn that has ended"),
    (result_lost, "C2 {execution} is completed, but no message tells its result"),
    (execution_lost, "proposes 'unsafe', which has no execution"),
    (usage_wrong, "C3 stored {{'input_tokens': 201,"),
    (maintenance_left, "C4 a maintenance pass changed Turn"),
    (answered_twice, "C5 {turn} is completed with 'hi', but its answers are ['hi', 'hi']"),
    (answer_differs, "C5 {turn} is completed with 'something else', but its answers are ['hi']"),
    (failed_with_an_answer, "C5 {turn} is failed, but has an answer"),
    (hole_in_the_numbers, "C5 {conversation}: message numbers are [1, 2, 3, 5], the next one 5"),
    (next_number_wrong, "C5 {conversation}: message numbers are [1, 2, 3, 4], the next one 99"),
]


@pytest.fixture
def model(turnkit_model: Callable[..., ScriptedModel]) -> ScriptedModel:
    """The script of one finished turn with a call."""
    model = turnkit_model([call("unsafe"), text("hi")])
    helper.conversation().submit("please")
    drain()
    return model


@pytest.mark.parametrize(("tamper", "told"), RULES, ids=[tamper.__name__ for tamper, _ in RULES])
def test_a_broken_rule_is_told_with_the_row(model: ScriptedModel, tamper: Callable[[], None], told: str):
    turn, execution = Turn.objects.get(), executions()[0]
    assert_clean(model=model)
    tamper()
    with pytest.raises(AssertionError) as caught:
        assert_clean(model=model)
    names = {"turn": turn.pk, "execution": execution.pk, "conversation": turn.conversation_id}
    assert str(caught.value).startswith("the database is not clean:\n")
    assert told.format(**names) in str(caught.value)


def test_a_next_request_that_a_provider_would_refuse_is_told(model: ScriptedModel, monkeypatch: pytest.MonkeyPatch):
    from turnkit_django.testing import asserts

    monkeypatch.setattr(asserts, "check_request", lambda *_, **__: ["V6 messages: broken"])
    with pytest.raises(AssertionError, match=r"C6 conv_\w+: V6 messages: broken"):
        assert_clean(model=model)


def test_violations_that_the_engine_caught_are_told(model: ScriptedModel):
    model.violations.append("V1 messages[0].id: empty")
    with pytest.raises(AssertionError, match=r"V V1 messages\[0\]\.id: empty"):
        assert_clean(model=model)


def test_all_broken_rules_are_told_at_once(model: ScriptedModel):
    answer_differs()
    next_number_wrong()
    usage_wrong()
    with pytest.raises(AssertionError) as caught:
        assert_clean(model=model)
    rules = re.findall(r"^ *(C\d) ", str(caught.value), re.MULTILINE)
    assert rules == ["C3", "C5", "C5"]


def test_without_a_script_the_ledger_is_only_added_up(model: ScriptedModel):
    usage_wrong()
    assert_clean()


def test_a_lost_call_makes_the_ledger_incomparable(turnkit_model):
    model = turnkit_model([text("lost"), text("hi")])
    helper.conversation().submit("please")
    with crash_at("responded"), pytest.raises(Crash):
        drain()
    drain()
    assert (model.usage, Turn.objects.get().usage.total_tokens) == (Usage(200, 40), 120)
    assert_clean(model=model)


def test_only_the_given_conversations_are_looked_at(model: ScriptedModel):
    other = helper.conversation()
    next_number_wrong()
    Conversation.objects.filter(pk=other.pk).update(next_sequence=1)
    assert_clean(other)


def test_the_trial_of_a_next_message_leaves_nothing(model: ScriptedModel):
    def state() -> str:
        kinds = (Conversation, Turn, Message, ToolExecution)
        return json.dumps([list(kind.objects.order_by("pk").values()) for kind in kinds], default=str)

    before = state()
    assert_clean(model=model)
    assert (state(), len(model.requests)) == (before, 2)
