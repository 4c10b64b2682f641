"""A limit that is reached when the answer is there does not take it back; a poison row does not block a scan."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection
from django.db.models import F

from tests.testapp.agents import helper
from turnkit_django import Agent, register, tool
from turnkit_django.agents import registry
from turnkit_django.engine import reconcile, runner
from turnkit_django.models import Turn
from turnkit_django.testing import Crash, assert_clean, call, crash_at, drain, text

pytestmark = pytest.mark.django_db(transaction=True)


@tool(terminal=True)
def finish() -> dict[str, str]:
    """End the turn."""
    return {"result": "refunded 30"}


def test_maintenance_leaves_an_overdue_turn_whose_answer_is_there(turnkit_model, monkeypatch):
    monkeypatch.setattr(registry, "_agents", dict(registry.registered()))
    agent = register(Agent(name="ender", model="openai/gpt-5-mini", tools=[finish]))
    model = turnkit_model([call("finish", {})])
    turn = agent.conversation().submit("End it")
    with crash_at("before_publish"), pytest.raises(Crash):
        runner.run_next()
    Turn.objects.update(lease_expires_at=F("claimed_at"), deadline_at=F("claimed_at"))
    assert reconcile.run_pass(batch=10).overdue == 0
    drain()
    turn.refresh_from_db()
    assert (turn.status, turn.output_text) == ("completed", "refunded 30")
    assert_clean(model=model)


@contextmanager
def poisoned_row(turn: Turn, condition: str) -> Iterator[None]:
    """A row whose update fails in the database under the condition."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.id = '{turn.pk}' "
            f"AND {condition} THEN RAISE EXCEPTION 'poisoned'; END IF; RETURN NEW; END $$;"
            "CREATE TRIGGER poison BEFORE UPDATE ON turnkit_turn FOR EACH ROW EXECUTE FUNCTION poison()"
        )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER poison ON turnkit_turn; DROP FUNCTION poison()")


def test_a_head_that_cannot_be_claimed_keeps_no_other_lane_waiting(turnkit_model):
    model = turnkit_model(lambda _request: text("hi"))
    poisoned, healthy = (helper.conversation().submit("Go") for _ in range(2))
    with poisoned_row(poisoned, "NEW.status = 'running'"):
        drain(max_seconds=0)
    poisoned.refresh_from_db()
    healthy.refresh_from_db()
    assert (healthy.status, poisoned.status) == ("completed", "pending")
    assert ("poisoned" in poisoned.error["message"], poisoned.next_check_at is not None) == (True, True)
    Turn.objects.update(next_check_at=None)
    drain()
    assert_clean(model=model)


def test_a_row_whose_wake_up_cannot_be_noted_keeps_no_other_from_being_woken(turnkit_model):
    turnkit_model([])
    poisoned, healthy = (helper.conversation().submit("Go") for _ in range(2))
    Turn.objects.update(wake_sent_at=None)
    with poisoned_row(poisoned, "NEW.wake_sent_at IS NOT NULL"):
        counts = reconcile.run_pass(batch=10)
    healthy.refresh_from_db()
    assert (counts.woken, counts.errors, healthy.wake_sent_at is not None) == (1, 1, True)


def test_an_overdue_row_that_cannot_be_handled_does_not_block_the_next(turnkit_model):
    turnkit_model([])
    poisoned, healthy = (helper.conversation().submit("Go") for _ in range(2))
    Turn.objects.update(deadline_at=F("created_at"))
    with poisoned_row(poisoned, "NEW.status <> OLD.status"):
        counts = [reconcile.run_pass(batch=1) for _ in range(2)]
    assert [(count.errors, count.overdue) for count in counts] == [(1, 0), (0, 1)]
    healthy.refresh_from_db()
    assert (healthy.status, healthy.error["message"]) == ("failed", "turn timed out")


def test_a_claim_that_meets_a_passing_error_is_repeated(turnkit_model):
    model = turnkit_model([text("hi")])
    turn = helper.conversation().submit("Go")
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE SEQUENCE passing; CREATE FUNCTION pass_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF NEW.status = 'running' AND nextval('passing') = 1 THEN RAISE EXCEPTION USING ERRCODE = '40001'; "
            "END IF; RETURN NEW; END $$; "
            "CREATE TRIGGER pass_once BEFORE UPDATE ON turnkit_turn FOR EACH ROW EXECUTE FUNCTION pass_once()"
        )
    try:
        assert runner.run_next()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER pass_once ON turnkit_turn; DROP FUNCTION pass_once(); DROP SEQUENCE passing")
    turn.refresh_from_db()
    assert (turn.status, turn.attempts, turn.iterations) == ("completed", 0, 1)
    assert_clean(model=model)
