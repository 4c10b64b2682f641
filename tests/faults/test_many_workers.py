"""Several worker processes, one truth."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from django.db import connections

from tests.faults.processes import failed_jobs
from tests.faults.rescue import has_ended
from tests.testapp.fault_agents import fragile
from tests.testapp.models import Effect, Note
from tests.waiting import wait_until
from turnkit_django.dispatch import RQDispatcher
from turnkit_django.errors import StateError
from turnkit_django.models import Message, Turn
from turnkit_django.testing import assert_clean, call, drain, model_server, text

pytestmark = pytest.mark.timeout(180)


class Paired:
    """A model whose first two questions wait for each other, so that both workers must be at work."""

    def __init__(self) -> None:
        self._count = 0
        self._lock = threading.Lock()
        self._both = threading.Barrier(2)
        self.pids = Counter()

    def __call__(self, request):
        with self._lock:
            self._count += 1
            is_first = self._count <= 2
        if is_first:
            self._both.wait(60)
        last = request.messages[-1]
        if last["role"] == "tool":
            self.pids[request.metadata["pid"]] += 1
            return text("charged")
        return call("charge_unknown", {"n": int(last["content"].split()[-1])})


def check_order(conversation) -> None:
    """One after the other, as submitted."""
    turns = list(conversation.turns.order_by("submitted_at"))
    assert [turn.lane_position for turn in turns] == sorted(turn.lane_position for turn in turns)
    for earlier, later in pairwise(turns):
        assert earlier.completed_at <= later.started_at
    tools = [message.turn_id for message in conversation.messages.filter(role="tool").order_by("sequence")]
    answers = [message.turn_id for message in conversation.messages.filter(kind="text", role="assistant")]
    assert tools == [turn.pk for turn in turns]
    assert sorted(answers) == sorted(tools)
    charged = [turn.tool_executions.get().result["charged"] for turn in turns]
    assert charged == sorted(charged)


def test_forty_turns_in_ten_conversations_on_two_workers(processes, model_port):
    script = Paired()
    with model_server(script, port=model_port) as model:
        workers = [processes.worker(), processes.worker()]
        conversations = [fragile.conversation() for _ in range(10)]
        turns = [
            conversation.submit(f"charge {place * 10 + number}")
            for place in range(4)
            for number, conversation in enumerate(conversations)
        ]
        wait_until(
            lambda: Turn.objects.filter(status="completed").count() == 40,
            lambda: f"{Counter(Turn.objects.values_list('status', flat=True))}\n{processes.logs}",
            seconds=90,
        )
        wait_until(lambda: not Turn.objects.unfinished().exists())
        assert (len(model.requests), model.violations) == (80, [])
    assert set(script.pids) == {str(worker.pid) for worker in workers}
    assert sum(script.pids.values()) == 40
    assert sorted(Effect.objects.values_list("n", flat=True)) == list(range(40))
    assert Turn.objects.filter(attempts=0, error__isnull=True, iterations=2).count() == len(turns)
    for conversation in conversations:
        check_order(conversation)
    assert failed_jobs() == []
    assert "Traceback" not in processes.logs
    assert_clean()


def test_five_wake_ups_and_four_workers_run_a_turn_once(processes, model_port):
    """B26: the same wake-up at once."""

    def charge(request):
        return text("done") if request.messages[-1]["role"] == "tool" else call("charge_unknown", {"gate": "go"})

    turn = fragile.conversation().submit("charge me")
    for _ in range(4):
        RQDispatcher().send_wake()
    with model_server(charge, port=model_port) as model:
        workers = [processes.worker("--burst") for _ in range(4)]
        wait_until(Note.objects.filter(name="ran").exists, lambda: processes.logs)
        # Three of them have nothing to do, and leave while the fourth is at work.
        wait_until(lambda: sum(worker.is_alive for worker in workers) == 1, lambda: processes.logs)
        Note.objects.create(name="go")
        assert [worker.ended() for worker in workers] == [0] * 4
        assert len(model.requests) == 2
    assert has_ended(turn)
    assert (turn.status, turn.output_text, turn.attempts) == ("completed", "done", 0)
    assert Effect.objects.count() == 1
    assert "Traceback" not in processes.logs
    assert failed_jobs() == []
    assert_clean()


def at_once(number: int, act):
    """Call `act(place)` in so many threads that start together; their results."""
    barrier = threading.Barrier(number)

    def run(place: int):
        try:
            barrier.wait(30)
            return act(place)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(run, range(number)))


@pytest.mark.django_db(transaction=True)
def test_twenty_submissions_with_one_key_are_one_turn():
    """B34: a double click, a retried request."""
    conversation, other = fragile.conversation(), fragile.conversation()
    found = at_once(20, lambda _place: conversation.submit("charge me", key="K").pk)
    assert len(set(found)) == 1
    assert Turn.objects.count() == Message.objects.count() == 1
    with pytest.raises(StateError, match="K"):
        conversation.submit("charge him", key="K")
    assert Turn.objects.count() == Message.objects.count() == 1
    assert other.submit("charge him", key="K").pk not in found


@pytest.mark.django_db(transaction=True)
def test_twenty_submissions_with_twenty_texts_and_one_key_are_one_turn_and_nineteen_refusals():
    conversation = fragile.conversation()

    def submit(place: int) -> str:
        try:
            return conversation.submit(f"charge {place}", key="K").pk
        except StateError:
            return ""

    found = at_once(20, submit)
    assert sorted(bool(turn) for turn in found) == [False] * 19 + [True]
    assert Turn.objects.count() == Message.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_submitting_one_prepared_turn_from_twenty_threads_gives_it_one_place():
    conversation = fragile.conversation()
    turn = conversation.prepare("charge me")
    at_once(20, lambda _place: Turn.objects.get(pk=turn.pk).submit().pk)
    conversation.refresh_from_db()
    turn.refresh_from_db()
    assert (turn.lane_position, conversation.next_lane_position) == (1, 2)


@pytest.mark.django_db(transaction=True)
def test_two_messages_without_a_key_are_two_turns_one_after_the_other(turnkit_model):
    conversation = fragile.conversation()
    model = turnkit_model(lambda request: text(f"answer to {request.last_text}"))
    at_once(2, lambda place: conversation.submit(f"question {place}").pk)
    drain()
    first, second = conversation.turns.order_by("lane_position")
    assert (first.status, second.status) == ("completed", "completed")
    seen = [message["content"] for message in model.requests[1].messages]
    assert seen == [first.trigger.text, first.output_text, second.trigger.text]
    assert_clean(model=model)
