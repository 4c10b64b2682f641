"""A limit that is reached when the answer is there does not take it back; a poison row does not block a scan."""

import pytest
from django.db import connection
from django.db.models import F

from tests.testapp.agents import helper
from turnkit_django import Agent, register, tool
from turnkit_django.agents import registry
from turnkit_django.engine import reconcile, runner
from turnkit_django.models import Turn
from turnkit_django.testing import Crash, assert_clean, call, crash_at, drain

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


def test_an_overdue_row_that_cannot_be_handled_does_not_block_the_next(turnkit_model):
    turnkit_model([])
    poisoned, healthy = (helper.conversation().submit("Go") for _ in range(2))
    Turn.objects.update(deadline_at=F("created_at"))
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.id = '{poisoned.pk}' "
            "AND NEW.status <> OLD.status THEN RAISE EXCEPTION 'poisoned'; END IF; RETURN NEW; END $$;"
            "CREATE TRIGGER poison BEFORE UPDATE ON turnkit_turn FOR EACH ROW EXECUTE FUNCTION poison()"
        )
    try:
        counts = [reconcile.run_pass(batch=1) for _ in range(2)]
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER poison ON turnkit_turn; DROP FUNCTION poison()")
    assert [(count.errors, count.overdue) for count in counts] == [(1, 0), (0, 1)]
    healthy.refresh_from_db()
    assert (healthy.status, healthy.error["message"]) == ("failed", "turn timed out")
