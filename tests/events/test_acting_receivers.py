"""Receivers that take their time or act themselves: their turn is not harmed, and others hear in order."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pytest_django import Settings

from tests.events.recording import connected, heard, types
from tests.testapp.agents import helper
from turnkit_django.core.events import Event
from turnkit_django.engine import heartbeat, reconcile
from turnkit_django.models import Turn
from turnkit_django.testing import assert_clean, call, drain, text

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("mode", ["inline", "background"])
@pytest.mark.parametrize("kind", ["turn.started", "model.requested"])
def test_a_slow_receiver_does_not_lose_the_lease(
    turnkit_model: Callable[[Any], Any], settings: Settings, monkeypatch: pytest.MonkeyPatch, mode: str, kind: str
):
    monkeypatch.setattr(heartbeat, "_thread", None)  # a renewer with the short interval
    settings.TURNKIT = {"LEASE_SECONDS": 1}
    turnkit_model([text("done")])
    recovered: list[int] = []

    def slow(*, event: Event, **_: object) -> None:
        if event.type == kind:
            before = Turn.objects.get(pk=event.turn_id).lease_expires_at
            while Turn.objects.get(pk=event.turn_id).lease_expires_at == before:
                threading.Event().wait(0.05)  # until it was renewed
            recovered.append(reconcile.run_pass(batch=10).recovered)

    with connected(slow):
        if mode == "inline":
            turn = helper.conversation().ask("x")
        else:
            turn = helper.conversation().submit("x")
            drain(max_seconds=1)
    turn.refresh_from_db()
    assert (recovered, turn.status, turn.attempts) == ([0], "completed", 0)


def test_what_a_receiver_does_is_told_after_what_it_was_told(turnkit_model: Callable[[Any], Any]):
    """Who keeps a turn's state by its events must not end with `started` when the turn is cancelled."""
    turnkit_model([call("unsafe", {"n": 1}), text("done")])

    def cancel(*, event: Event, **_: object) -> None:
        if event.type == "model.completed":
            Turn.objects.get(pk=event.turn_id).cancel()

    with connected(cancel), heard() as found:
        helper.conversation().submit("x")
        drain()
    told = types(found)
    assert told.index("tool_call.created") < told.index("tool_call.skipped") < told.index("turn.cancelled")
    assert told[-1] == "turn.cancelled"
    assert_clean()


@pytest.mark.parametrize("verb", ["ask", "prepare"])
def test_the_first_turn_of_a_key_is_followed(turnkit_model: Callable[[Any], Any], verb: str):
    turnkit_model([text("done")])
    conversation, found = helper.conversation(), []
    conversation.prepare("x", key="k")
    if verb == "ask":
        conversation.ask("x", key="k", on_event=found.append)
    else:
        conversation.prepare("x", key="k", on_event=found.append).run()
    assert types(found)[-1] == "turn.completed"


def test_words_of_strangers_make_no_lines_of_their_own(
    turnkit_model: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
):
    turnkit_model([RuntimeError("no\n2026-01-01 ERROR all is lost\x1b[31m")])
    with caplog.at_level("DEBUG", logger="turnkit"):
        turn = helper.conversation().ask("x")
    assert turn.status == "failed"
    told = [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "turn.failed"]
    assert len(told) == 1
    assert "\n" not in told[0]
    assert "\x1b" not in told[0]
