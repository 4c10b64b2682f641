"""Random interleavings of what people, workers, crashes and maintenance do: at every quiescence all is clean.

`TURNKIT_INTERLEAVINGS` sets the number of examples; a nightly run takes 2000.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db.models import QuerySet
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.testapp.delegating_agents import BOSS, boss
from turnkit_django.controls import DESCENDANTS
from turnkit_django.engine import model_call, reconcile, runner
from turnkit_django.errors import IllegalMove, LostClaim, StateError
from turnkit_django.models import Conversation, Delivery, Turn
from turnkit_django.store import outbox, transitions
from turnkit_django.store.claims import Claimed
from turnkit_django.store.transitions import launching, working
from turnkit_django.testing import Crash, ScriptedModel, assert_clean, call, crash_at, drain, text

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(6000)]

EXAMPLES = int(os.environ.get("TURNKIT_INTERLEAVINGS", "25"))
LANES = st.integers(0, 2)
POINTS = (
    "claimed", "reserved", "responded", "response_stored", "before_publish", "published", "result_stored",
    "launch.before", "launch.written", "launch.committed", "launch_detached.committed", "join.written",
    "send_under_claim.committed", "complete.written", "claim_due.committed", "deliver.written",
)  # fmt: skip
TASKS = ("plain", "delegate", "detach", "tell", "refuse", "wait", "pause")
STEP = st.one_of(
    st.tuples(st.just("submit"), LANES, st.sampled_from(TASKS)),
    st.tuples(st.just("submit with callback"), LANES, LANES),
    st.tuples(st.just("run"), st.integers(1, 3)),
    st.tuples(st.just("run"), st.integers(1, 3)),
    st.tuples(st.just("crash"), st.sampled_from(POINTS)),
    st.tuples(st.just("recover")),
    st.tuples(st.just("post"), LANES),
    st.tuples(st.just("send"), LANES, LANES),
    st.tuples(st.just("wait"), LANES, LANES),
    st.tuples(st.just("cancel"), st.integers(0, 5), st.sampled_from(DESCENDANTS)),
    st.tuples(st.just("pause"), st.integers(0, 5), st.sampled_from(DESCENDANTS)),
    st.tuples(st.just("resume"), st.integers(0, 5), st.sampled_from(DESCENDANTS)),
    st.tuples(st.just("retry")),
    st.tuples(st.just("ask"), LANES),
    st.tuples(st.just("hold")),
    st.tuples(st.just("ghost")),
    st.tuples(st.just("lose redis")),
    st.tuples(st.just("reconcile")),
    st.tuples(st.just("drain")),
)
GHOSTLY = st.sampled_from([("submit", 0, "plain"), ("hold",), ("recover",), ("hold",), ("ghost",)])
"""The steps among which a ghost shows soon."""
KINDS = frozenset({
    "submit", "submit with callback", "run", "crash", "recover", "post", "send", "wait", "cancel", "pause", "resume",
    "retry", "ask", "hold", "ghost", "lose redis", "reconcile", "drain",
})  # fmt: skip
done: Counter[str] = Counter()


def answer(request: Any) -> Any:
    """What a model says depends on its last message alone: it is the same in any order."""
    last = request.messages[-1]
    if request.model != BOSS or last["role"] == "tool":
        return _wait_for(last) or text("done")
    match last["content"].split():
        case ["delegate"]:
            return [call("writer", {"task": "write"}), call("reader", {"task": "read"})]
        case ["detach" | "wait" as how]:
            return call("launch_agent", {"agent_name": "writer", "task": how, "callback": how == "detach"})
        case ["tell", other]:
            return call("send_message", {"conversation_id": other, "text": "plain"})
        case ["refuse"]:
            return {"error": {"status": 400}}
        case ["pause"]:  # somebody pauses the turn while the model answers
            Turn.objects.get(pk=request.metadata["turn_id"]).pause()
    return text("done")


def _wait_for(last: dict[str, Any]) -> Any:
    started = Turn.objects.filter(pk=last["content"].partition('"turn_id": "')[2][:31]).first()
    if last["role"] == "tool" and started is not None and started.trigger.text == "wait" and not started.is_terminal:
        return call("wait_for", {"turn_ids": [started.pk]})
    return None


@dataclass
class World:
    """Three conversations, and the claims that slow workers keep in their hands."""

    model: ScriptedModel = field(default_factory=lambda: ScriptedModel(answer))
    lanes: list[Conversation] = field(default_factory=lambda: [boss.conversation() for _ in range(3)])
    held: list[Claimed] = field(default_factory=list)
    count: int = 0

    def take(self, kind: str, *values: Any) -> None:
        done[kind] += 1
        getattr(self, kind.replace(" ", "_"))(*values)

    def submit(self, lane: int, task: str) -> None:
        other = self.lanes[(lane + 1) % 3]
        self.lanes[lane].submit(f"tell {other.pk}" if task == "tell" else task)

    def submit_with_callback(self, lane: int, other: int) -> None:
        self.lanes[lane].submit("plain", callback=self.lanes[other])

    def run(self, times: int) -> None:
        for _ in range(times):
            runner.run_next()

    def crash(self, point: str) -> None:
        with suppress(Crash), crash_at(point):
            runner.run_next() or reconcile.run_pass(batch=10)

    def recover(self) -> None:
        """The workers of all claims are dead, those that are held too: they may come back as ghosts."""
        for turn in Turn.objects.filter(status="running"):
            reconcile.recover(turn.pk, turn.claim_token or "", 0, is_dead=True)
        Turn.objects.filter(not_before__isnull=False).update(not_before=None)

    def post(self, lane: int) -> None:
        self.count += 1
        self.lanes[lane].post("plain", key=f"post {self.count}")

    def send(self, lane: int, other: int) -> None:
        self.count += 1
        self.lanes[lane].send(self.lanes[other], "delegate", key=f"send {self.count}")

    def wait(self, lane: int, other: int) -> None:
        target = self.lanes[other].turns.exclude(submitted_at=None).order_by("-pk").first()
        if target is not None:
            with suppress(StateError):  # a cycle, or a turn of the same conversation
                self.lanes[lane].submit("plain").wait_for(target)

    def cancel(self, number: int, descendants: str) -> None:
        for turn in _one_of(Turn.objects.unfinished(), number):
            turn.cancel(descendants=descendants)

    def pause(self, number: int, descendants: str) -> None:
        for turn in _one_of(Turn.objects.unfinished(), number):
            turn.pause(descendants=descendants)

    def resume(self, number: int, descendants: str) -> None:
        for turn in _one_of(Turn.objects.filter(status="paused"), number):
            turn.resume(descendants=descendants)

    def retry(self) -> None:
        failed = Turn.objects.filter(status="failed", parent=None, conversation__in=self.lanes).order_by("-pk").first()
        if failed is not None:
            with suppress(StateError):  # it was retried before
                failed.retry()

    def ask(self, lane: int) -> None:
        with suppress(StateError):  # the lane is busy
            self.lanes[lane].ask("delegate")

    def hold(self) -> None:
        self.held += transitions.claim(runner.holder())

    def ghost(self) -> None:
        """A worker that slept comes back with an answer; it is stored if, and only if, its claim is in force."""
        for claimed in self.held:
            in_force = Turn.objects.filter(pk=claimed.turn.pk, claim_token=claimed.claim.token).exists()
            try:
                transitions.complete(claimed.claim, text="from a slow worker", reply=None)
            except LostClaim:
                assert not in_force
            else:
                assert in_force, "a ghost has written"
        self.held.clear()

    def lose_redis(self) -> None:
        Queue.is_down = not Queue.is_down

    def reconcile(self) -> None:
        reconcile.run_pass(batch=2)

    def drain(self) -> None:
        self.recover()
        drain(max_seconds=60)

    def end(self) -> None:
        self.drain()
        while paused := list(Turn.objects.filter(status="paused")):
            for turn in paused:
                if turn.resume().submitted_at is None:
                    turn.run()
            self.drain()
        turns = Turn.objects.all()
        assert not turns.filter(submitted_at__isnull=False, completed_at__isnull=True).exists()
        for delivery in Delivery.objects.filter(delivered_at=None) | Delivery.objects.filter(message=None):
            raise AssertionError(f"{delivery.pk} was not delivered: {delivery.error}")
        sequences = Delivery.objects.values_list("message_id", flat=True)
        assert len(set(sequences)) == len(sequences), "a message was delivered twice"
        assert_clean(model=self.model)
        Conversation.objects.all().delete()


def _one_of(turns: QuerySet[Turn], number: int) -> list[Turn]:
    found = list(turns.order_by("pk"))
    return found[number % len(found) :][:1] if found else []


class Queue:
    """A queue that is there, or not."""

    is_down = False

    def send_wake(self) -> None:
        if Queue.is_down:
            raise ConnectionError("no queue")


@pytest.fixture(autouse=True)
def _queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "get_dispatcher", Queue)
    monkeypatch.setattr(Queue, "is_down", False)


def property_of(max_examples: int, step: Any = STEP, **options: Any) -> Callable[[], None]:
    @settings(
        max_examples=max_examples,
        deadline=None,
        derandomize="TURNKIT_INTERLEAVINGS" not in os.environ,
        database=None,
        suppress_health_check=list(HealthCheck),
        **options,
    )
    @given(st.lists(step, min_size=5, max_size=30))
    def holds(steps: list[tuple[Any, ...]]) -> None:
        world = World()
        with model_call.use(world.model):
            for step in steps:
                world.take(*step)
            world.end()

    return holds


def test_whatever_happens_in_whatever_order_all_ends_clean():
    done.clear()
    property_of(EXAMPLES)()
    assert set(done) == KINDS


def test_without_the_fence_it_is_found(monkeypatch: pytest.MonkeyPatch):
    for module in (working, launching):
        monkeypatch.setattr(module, "require_held", lambda turn, held: None)
    with pytest.raises((AssertionError, IllegalMove), match=r"a ghost has written|not clean|cannot move"):
        property_of(500, GHOSTLY, phases=[Phase.generate])()
