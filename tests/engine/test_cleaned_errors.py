"""Secrets are taken out before a text is cut, and out of tracebacks that go to the log."""

import logging
from datetime import timedelta

import pytest
from django.db import OperationalError

from tests.testapp.agents import helper
from turnkit_django import Agent, Tool, register, tool
from turnkit_django.agents import registry
from turnkit_django.engine import heartbeat, reconcile, tool_calls
from turnkit_django.models import Turn
from turnkit_django.models.querysets import ClockTime
from turnkit_django.store import transitions
from turnkit_django.testing import call, drain, text

pytestmark = pytest.mark.django_db
PASSWORD = "correct-horse-battery-staple"
URL = "redis://:hunter2hunter2@cache:6379/0"


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DB_PASSWORD_TEST", PASSWORD)
    monkeypatch.setattr(registry, "_agents", dict(registry._agents))


def logged(caplog: pytest.LogCaptureFixture, event: str) -> str:
    """The one line of the event as a handler writes it."""
    (record,) = (record for record in caplog.records if getattr(record, "event", "") == event)
    return logging.Formatter().format(record)


def check_log(line: str) -> None:
    assert "Traceback (most recent call last)" in line
    assert "[redacted]" in line
    assert PASSWORD not in line
    assert "hunter2" not in line


@pytest.mark.parametrize("secret", [PASSWORD, "sk-0123456789abcdefghij", URL])
def test_a_secret_at_the_cut_of_a_long_message_is_taken_out_whole(turnkit_model, secret: str):
    @tool
    def shout() -> None:
        """Fail with many words."""
        raise ValueError("x" * (tool_calls._LONGEST_MESSAGE - len("ValueError: ") - 20) + " " + secret)

    agent = register(Agent(name="shouter", model="openai/gpt-5-mini", tools=[shout]))
    model = turnkit_model([call("shout"), text("ok")])
    turn = agent.conversation().ask("please")
    stored = [turn.tool_executions.get().error["message"], model.requests[-1].messages[-1]["content"]]
    assert [piece for piece in ("hunt", "corr", "sk-0") for told in stored if piece in told] == []


def test_the_log_of_a_failing_worker_holds_no_secret(turnkit_model, caplog):
    turnkit_model([RuntimeError(f"{PASSWORD} {URL}")])
    helper.conversation().submit("please")
    drain(max_seconds=0)
    check_log(logged(caplog, "turn.fault"))


def test_the_log_of_a_failing_completion_holds_no_secret(turnkit_model, caplog):
    class Last(Tool):
        terminal = True

        def call(self) -> None: ...

        def completion(self, result: object) -> str:
            raise RuntimeError(f"{PASSWORD} {URL}")

    agent = register(Agent(name="closer", model="openai/gpt-5-mini", tools=[Last]))
    turnkit_model([call("last")])
    assert agent.conversation().ask("please").output_text == "Completed by last."
    check_log(logged(caplog, "tool.completion_failed"))


def test_the_log_of_failing_maintenance_holds_no_secret(caplog, monkeypatch):
    turn = helper.conversation().submit("please")
    Turn.objects.filter(pk=turn.pk).update(deadline_at=ClockTime() - timedelta(seconds=1))

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(f"{PASSWORD} {URL}")

    monkeypatch.setattr(transitions, "give_up", fail)
    assert reconcile.run_pass(batch=10).errors == 1
    check_log(logged(caplog, "reconcile.error"))


def test_the_log_of_a_failing_renewal_holds_no_secret(caplog, monkeypatch):
    class Stopped(BaseException):
        pass

    def fail() -> bool:
        raise OperationalError(f"{PASSWORD} {URL}")

    def stop() -> None:
        raise Stopped

    monkeypatch.setattr(heartbeat, "renew_all", fail)
    monkeypatch.setattr(heartbeat.connections, "release", stop)
    monkeypatch.setattr(heartbeat._never, "wait", lambda seconds: None)
    with pytest.raises(Stopped):
        heartbeat._renew_for_ever()
    check_log(logged(caplog, "lease.not_renewed"))
