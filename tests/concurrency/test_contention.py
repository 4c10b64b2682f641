"""Four hot lanes, eight writers and two controllers."""

import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, transaction

from tests.concurrency.threads import alone, closing, deadlocks, observer, wide_pool
from tests.testapp.agents import helper
from tests.testapp.models import Effect
from turnkit_django.conf import get
from turnkit_django.engine import reconcile, runner
from turnkit_django.errors import StateError
from turnkit_django.models import Conversation, ToolExecution, Turn
from turnkit_django.testing import assert_clean, call, drain, text

SECONDS = 5.0
LANES, WRITERS, CONTROLLERS = 4, 8, 2
BACKLOG = 24
"""As many turns may wait; then the writers run some first."""


def script(request: Any) -> Any:
    """Calls a tool, or two at once, then answers."""
    if request.messages[-1]["role"] == "tool":
        return text("done")
    chosen = random.choice(["safe", "unsafe", "both", ""])
    if chosen == "both":
        return [call("safe", {"n": 1}), call("unsafe", {"n": 2})]
    return call(chosen, {"n": 1}) if chosen else text("done")


def write(lanes: list[Conversation], end: float, seed: int) -> int:
    """Say, submit, ask and run turns; how much was done."""
    luck, count = random.Random(seed), 0
    while time.monotonic() < end:
        lane = luck.choice(lanes)
        step = luck.choice(["say", "submit", "submit", "ask", "run", "run", "run"])
        if step == "submit" and Turn.objects.unfinished().count() > BACKLOG:
            step = "run"
        if step == "run":
            runner.run_next()
        elif step == "ask":
            _ask(lane)
        else:
            getattr(lane, step)(f"{step} {count}")
        count += 1
    return count


def _ask(lane: Conversation) -> None:
    try:
        lane.ask("now")
    except StateError as busy:
        assert "is busy with" in str(busy)  # noqa: PT017


def control(lanes: list[Conversation], end: float, seed: int) -> int:
    """Cancel now and then, and keep house; errors of maintenance."""
    luck, errors = random.Random(seed), 0
    while time.monotonic() < end:
        errors += reconcile.run_pass(batch=get().MAINTENANCE_BATCH).errors
        turn = Turn.objects.unfinished().filter(conversation=luck.choice(lanes)).order_by("?").first()
        if turn is not None:
            turn.cancel()
    return errors


def watch(watching: psycopg.Connection[Any], stop: threading.Event) -> tuple[int, list[Any]]:
    """Look for conversations with two running turns, all the time; looks, and what was found."""
    looks, found = 0, []
    while not stop.wait(0.002):
        found += watching.execute(
            "SELECT conversation_id, count(*) FROM turnkit_turn WHERE status = 'running' GROUP BY 1 HAVING count(*) > 1"
        ).fetchall()
        looks += 1
    return looks, found


@pytest.mark.django_db(transaction=True)
def test_hot_lanes_never_deadlock_and_stay_in_order(
    turnkit_model: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, logger="turnkit")
    model = turnkit_model(script)
    lanes = [helper.conversation() for _ in range(LANES)]
    stop = threading.Event()
    with observer() as watching, observer() as counting:
        before = deadlocks(counting)
        with wide_pool(WRITERS + CONTROLLERS + 2), ThreadPoolExecutor(WRITERS + CONTROLLERS + 1) as pool:
            watcher = pool.submit(watch, watching, stop)
            end = time.monotonic() + SECONDS
            writers = [pool.submit(closing(partial(write, lanes, end, seed))) for seed in range(WRITERS)]
            controllers = [pool.submit(closing(partial(control, lanes, end, seed))) for seed in range(CONTROLLERS)]
            done = [writer.result() for writer in writers]
            errors = [controller.result() for controller in controllers]
            stop.set()
            looks, doubled = watcher.result()
        watching.close()
        alone(counting)
        assert deadlocks(counting) - before == 0
    assert doubled == []
    assert errors == [0] * CONTROLLERS
    assert (min(done) > 0, looks > 100) == (True, True)
    assert [record.message for record in caplog.records if getattr(record, "event", "") == "turn.fault"] == []

    drain(max_seconds=10)

    assert not Turn.objects.unfinished().exists()
    for lane in lanes:
        numbers = lane.messages.order_by("sequence").values_list("sequence", flat=True)
        assert list(numbers) == list(range(1, len(numbers) + 1))
    assert {"completed", "cancelled"} == set(Turn.objects.values_list("status", flat=True))
    settled = ToolExecution.objects.filter(status="completed").count()
    assert settled <= Effect.objects.count() <= settled + ToolExecution.objects.filter(status="interrupted").count()
    assert model.violations == []
    assert_clean(model=model)


@pytest.mark.django_db(transaction=True)
def test_the_count_of_deadlocks_counts():
    one, other = (helper.conversation() for _ in range(2))
    meeting = threading.Barrier(2)

    def lock(first: Conversation, second: Conversation) -> bool:
        try:
            with transaction.atomic():
                Conversation.objects.select_for_update().get(pk=first.pk)
                meeting.wait(30)
                Conversation.objects.select_for_update().get(pk=second.pk)
        except OperationalError as error:
            return "deadlock detected" in str(error)
        return False

    with observer() as watching, ThreadPoolExecutor(2) as pool:
        before = deadlocks(watching)
        tries = [pool.submit(closing(partial(lock, *pair))) for pair in ((one, other), (other, one))]
        assert sorted(each.result() for each in tries) == [False, True]
        alone(watching)
        assert deadlocks(watching) - before == 1
