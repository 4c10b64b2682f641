"""Maintenance does not wait behind a lane that the application holds."""

import threading

import pytest
from django.db import connection, transaction

from tests.testapp.agents import helper
from turnkit_django.core.ids import new_token
from turnkit_django.engine import reconcile
from turnkit_django.models import Conversation, Turn
from turnkit_django.store import transitions
from turnkit_django.store.claims import Holder


@pytest.mark.django_db(transaction=True)
def test_a_lane_that_somebody_holds_does_not_keep_maintenance_from_the_next():
    held, free = (helper.conversation() for _ in range(2))
    turns = [conversation.submit("Hi") for conversation in (held, free)]
    for _ in turns:
        transitions.claim(Holder("gone:1:1", 60, (new_token(),)))
    Turn.objects.update(lease_expires_at="2000-01-01T00:00Z")
    is_held, is_done = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            Conversation.objects.select_for_update().get(pk=held.pk)
            is_held.set()
            is_done.wait(30)
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert is_held.wait(30)
        counts = reconcile.run_pass(batch=10)
        assert (counts.recovered, counts.errors) == (1, 0)
        assert [Turn.objects.get(pk=turn.pk).status for turn in turns] == ["running", "pending"]
    finally:
        is_done.set()
        holder.join()
    assert reconcile.run_pass(batch=10).recovered == 1
