"""Code of the application that leaves a transaction open outside of a tool's body: its turn pays, no other one does."""

import threading
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from django.db import connection, transaction
from pydantic import AfterValidator

from tests.events.recording import heard
from tests.testapp.agents import helper
from tests.testapp.models import Effect
from turnkit_django import Agent, Tool, jobs, register
from turnkit_django.agents import registry
from turnkit_django.core.requests import ModelReply, ModelRequest
from turnkit_django.engine import model_call
from turnkit_django.models import Message, Turn
from turnkit_django.testing import ScriptedModel, call, text

pytestmark = pytest.mark.django_db(transaction=True)


def enter() -> None:
    transaction.atomic().__enter__()


def begin() -> None:
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")


def stop_committing() -> None:
    connection.set_autocommit(False)


armed: dict[str, Callable[[], None]] = {}
"""What happens once, and where."""


def pass_by(place: str) -> None:
    if leave := armed.pop(place, None):
        leave()
        Effect.objects.create(name="lost")


def checked(value: int) -> int:
    pass_by("argument")
    return value


class Close(Tool):
    """Close the case."""

    terminal = True

    def call(self, n: Annotated[int, AfterValidator(checked)] = 0) -> dict:
        """Close it."""
        return {}

    def completion(self, result: Any) -> str:
        pass_by("completion")
        return "closed"


class Client(ScriptedModel):
    def validate(self, model: str) -> None:
        pass_by("validate")

    def complete(self, request: ModelRequest, **options: Any) -> ModelReply:
        pass_by("complete")
        return super().complete(request, **options)


@pytest.fixture(autouse=True)
def known_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_agents", dict(registry.registered()))


@pytest.mark.parametrize("leave", [enter, begin, stop_committing])
@pytest.mark.parametrize("place", ["completion", "complete", "validate", "argument"])
def test_a_worker_goes_on_with_other_turns_and_no_event_lies(leave: Callable[[], None], place: str):
    script = [call("close", {"n": 1}), *[text("done")] * 9]
    with heard() as found, model_call.use(Client(script)):
        register(Agent(name="closer", tools=[Close])).conversation().submit("x")
        healthy = [helper.conversation().submit("y") for _ in range(2)]
        armed[place] = leave
        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
    assert armed == {}
    assert {Turn.objects.get(pk=turn.pk).status for turn in healthy} == {"completed"}
    assert Turn.objects.filter(status="running").count() == 0
    assert Effect.objects.count() == 0
    told = {event.message_id for event in found if event.type == "message.created"}
    assert told == set(Message.objects.values_list("pk", flat=True))


def work() -> None:
    """A worker's life, in a thread of its own."""
    try:
        for _ in range(3):
            jobs.wake()
    finally:
        connection.close()
