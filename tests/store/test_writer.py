"""State is read where it is written, whatever a router says of reads."""

from decimal import Decimal

import pytest
from django.db import router
from django.db.models import F

from tests.testapp.agents import helper
from turnkit_django.engine import reconcile, runner
from turnkit_django.models import Turn
from turnkit_django.runs import Run
from turnkit_django.testing import Crash, assert_clean, call, crash_at, text

COST = Decimal("0.002")  # of two scripted answers


class ReadsElsewhere:
    """A router to a replica that does not exist: asking it is an error."""

    def db_for_read(self, model: object, **hints: object) -> str | None:
        return "replica" if getattr(model, "_meta", None) and model._meta.app_label == "turnkit" else None

    def db_for_write(self, model: object, **hints: object) -> str:
        return "default"

    def allow_relation(self, *rows: object, **hints: object) -> bool:
        return True


@pytest.mark.django_db(transaction=True)
def test_a_recovered_turn_is_read_from_the_writer(turnkit_model, monkeypatch):
    model = turnkit_model([call("unsafe"), text("ok")])
    conversation = helper.conversation()
    turn = conversation.submit("Go")
    with crash_at("response_stored"), pytest.raises(Crash):
        runner.run_next()
    Turn.objects.update(lease_expires_at=F("claimed_at"))
    monkeypatch.setattr(router, "routers", [ReadsElsewhere()])
    reconcile.run_pass(batch=10)
    assert runner.run_next()
    run = Run(Turn.objects.using("default").get(pk=turn.pk))
    assert (run.status, run.cost, conversation.cost) == ("completed", COST, COST)
    assert (run.usage, run.messages.count(), run.tool_executions.count()) == (conversation.usage, 4, 1)
    monkeypatch.undo()
    assert_clean(model=model)
