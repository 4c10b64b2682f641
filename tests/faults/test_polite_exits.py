"""B68: tools that end their process politely, eat what should end them, or leave it in disorder."""

import signal
import traceback
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.test import override_settings
from django_rq import get_queue
from rq.job import Job
from rq.serializers import JSONSerializer

from tests.faults.processes import Processes, failed_jobs, queued
from tests.faults.rescue import has_ended, maintained_until, with_settings
from tests.faults.test_deadly_turns import Workers
from tests.faults.test_sigterm import told_twice
from tests.testapp.hostile_tools import DEEDS, RAISED, Own, hostile, hurried
from tests.testapp.models import Effect, Note
from tests.waiting import wait_until
from turnkit_django import jobs
from turnkit_django.clients.base import ModelClient
from turnkit_django.engine import model_call
from turnkit_django.errors import StateError
from turnkit_django.models import Turn
from turnkit_django.testing import assert_clean, call, drain, model_server, text

pytestmark = pytest.mark.timeout(150)

LEFT_OPEN = {"enter atomic", "autocommit off", "begin"}
OF_THE_PROCESS = {"change directory", "ignore signals", "close stdout", "start a thread", "_exit"}
BECOMES = (
    {how: f"failed {type(make()).__name__}" for how, make in RAISED.items()}
    | dict.fromkeys(DEEDS, "completed")
    | dict.fromkeys(LEFT_OPEN, "failed ToolError")
    | {"recursion": "failed RecursionError", "begin and fail": "failed IntegrityError"}
)


class Asker:
    """A model that has the tool do what the user says, then is content."""

    def __init__(self, tool: str = "misbehave") -> None:
        self._tool = tool

    def __call__(self, request: Any) -> Any:
        last = request.messages[-1]
        return text("recovered") if last["role"] == "tool" else call(self._tool, {"how": last["content"]})


def outcome(turn: Turn) -> str:
    execution = turn.tool_executions.get()
    return " ".join([execution.status, *([execution.error["type"]] if execution.error else [])])


def as_if_nothing_had_happened(turn: Turn) -> None:
    turn.refresh_from_db()
    assert (turn.status, turn.output_text, turn.attempts) == ("completed", "recovered", 0), turn.error


def test_a_worker_outlives_whatever_its_tools_raise_and_most_of_what_they_do(processes: Processes, model_port: int):
    kinds = [how for how in BECOMES if how != "_exit"]
    with model_server(Asker(), port=model_port) as model:
        turns = {how: hostile.conversation().submit(how) for how in kinds}
        worker = processes.worker()
        for how, turn in turns.items():
            wait_until(lambda: has_ended(turn), lambda: f"{how}: {worker.log[-4000:]}")  # noqa: B023
        assert model.violations == []
        assert worker.is_alive
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0, worker.log
    for turn in turns.values():
        as_if_nothing_had_happened(turn)
    assert {how: outcome(turn) for how, turn in turns.items()} == {how: BECOMES[how] for how in kinds}
    assert sorted(Note.objects.values_list("name", flat=True)) == sorted(kinds)
    assert Effect.objects.count() == 2  # of those that closed or broke the connection after it
    assert failed_jobs() == []
    assert_clean()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", sorted(set(BECOMES) - OF_THE_PROCESS - {"interrupt"}))
def test_an_inline_turn_outlives_it_too(turnkit_model: Any, how: str):
    model = turnkit_model(Asker())

    turn = hostile.conversation().ask(how)

    as_if_nothing_had_happened(turn)
    assert outcome(turn) == BECOMES[how]
    assert Effect.objects.count() == (1 if how in {"close connection", "terminate connection"} else 0)
    assert_clean(model=model)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", sorted(set(RAISED) - {"interrupt", "stop"}))
def test_whatever_comes_out_of_a_coroutine_is_a_failed_call(turnkit_model: Any, how: str):
    model = turnkit_model(Asker("misbehave_later"))

    turn = hostile.conversation().ask(how)

    as_if_nothing_had_happened(turn)
    assert outcome(turn) == BECOMES[how]
    assert_clean(model=model)


@pytest.mark.django_db
@pytest.mark.parametrize("how", ["enter atomic", "exit"])
def test_a_transaction_left_open_inside_a_test_case_is_rolled_back_to_where_the_tool_began(
    turnkit_model: Any, how: str
):
    turnkit_model(Asker())
    before = len(connection.atomic_blocks)

    turn = hostile.conversation().ask(how)

    as_if_nothing_had_happened(turn)
    assert (outcome(turn), Effect.objects.count()) == (BECOMES[how], 0)
    assert len(connection.atomic_blocks) == before


@pytest.mark.django_db(transaction=True)
def test_a_turn_does_not_run_where_no_statement_is_committed(turnkit_model: Any):
    model = turnkit_model([])
    conversation = hostile.conversation()
    transaction.set_autocommit(False)
    try:
        with pytest.raises(StateError, match="cannot run inside a transaction"):
            conversation.ask("hello")
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert (model.requests, Turn.objects.count()) == ([], 0)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("handler", ["of a worker", "ignored"])
def test_an_interrupt_that_no_signal_can_have_raised_is_the_tools_own(turnkit_model: Any, handler: str):
    model = turnkit_model(Asker())
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if handler == "ignored" else lambda *_: None)
    try:
        turn = hostile.conversation().ask("interrupt")
    finally:
        signal.signal(signal.SIGINT, before)
    as_if_nothing_had_happened(turn)
    assert outcome(turn) == "failed KeyboardInterrupt"
    assert_clean(model=model)


@pytest.mark.django_db(transaction=True)
def test_ctrl_c_during_a_tool_stops_the_worker_and_another_one_takes_the_turn(turnkit_model: Any):
    model = turnkit_model(Asker())
    turn = hostile.conversation().submit("interrupt")
    with pytest.raises(KeyboardInterrupt):
        drain()
    turn.refresh_from_db()
    assert (turn.status, turn.claim_token) == ("pending", None)
    drain()
    as_if_nothing_had_happened(turn)
    assert outcome(turn) == "interrupted Interrupted"
    assert_clean(model=model)


class Leaving(ModelClient):
    """Ends the process instead of answering."""

    def __init__(self, problem: BaseException) -> None:
        self.problem, self.count = problem, 0

    def validate(self, model: str) -> None:
        """Nothing to check."""

    def complete(self, request: Any) -> Any:
        self.count += 1
        raise self.problem


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("problem", [SystemExit(0), KeyboardInterrupt(), GeneratorExit(), Own()], ids=repr)
def test_a_model_client_that_ends_every_process_is_asked_a_bounded_number_of_times(problem: BaseException):
    turn = hostile.conversation().submit("hello")
    client = Leaving(problem)
    before = signal.signal(signal.SIGINT, lambda *_: None)  # as in a worker
    try:
        with model_call.use(client), override_settings(TURNKIT={"MAX_RECOVERIES": 1}):
            for _ in range(2):
                with pytest.raises(type(problem)):
                    drain(max_seconds=0)
                Turn.objects.update(not_before=None)
                Turn.objects.filter(status="running").update(lease_expires_at=F("claimed_at"))
            drain()
    finally:
        signal.signal(signal.SIGINT, before)
    turn.refresh_from_db()
    assert (turn.status, client.count) == ("failed", 2)
    assert_clean()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_what_ends_a_job_politely_leaves_no_words_for_redis(kind: type[BaseException]):
    hostile.conversation().submit("hello")
    client = Leaving(kind("correct-horse"))
    with model_call.use(client), pytest.raises(kind) as caught:
        jobs.wake()
    assert client.count == 1
    assert "correct-horse" not in "".join(traceback.format_exception(caught.value))


def test_a_job_has_no_time_limit_of_its_own(transactional_db: None, empty_redis: None):
    """RQ's limit is an exception raised inside the tool: one that swallows exceptions would go on without it."""
    hostile.conversation().submit("hello")
    (job,) = queued()
    assert Job.fetch(job, connection=get_queue("turnkit").connection, serializer=JSONSerializer).timeout == -1


def test_a_tool_that_eats_every_exception_is_bounded_by_the_deadline_of_its_turn(processes: Processes, model_port: int):
    with model_server(lambda _: [call("swallow"), call("misbehave", {"how": "exit"})], port=model_port) as model:
        worker = processes.worker()
        wait_until(lambda: "Listening on" in worker.log, lambda: worker.log)
        turn = hurried.conversation().submit("hello")
        wait_until(lambda: has_ended(turn), lambda: worker.log)
        assert len(model.requests) == 1
    assert (turn.status, turn.error["message"]) == ("failed", "turn timed out")
    first, second = turn.tool_executions.order_by("ordinal")
    assert (first.status, first.result) == ("completed", {"result": "went on"})
    assert (second.status, second.started_at) == ("cancelled", None)
    assert_clean()


def test_what_such_a_tool_returns_after_a_cancel_is_not_stored(processes: Processes, model_port: int):
    batch = [call("swallow", {"gate": "go"}), call("misbehave", {"how": "exit"})]
    answer = [batch, text("next")]
    with model_server(answer, port=model_port) as model:
        turn = hostile.conversation().submit("hello")
        worker = processes.worker()
        wait_until(Note.objects.filter(name="swallowing").exists, lambda: worker.log)
        turn.cancel()
        Note.objects.create(name="go")
        later = hostile.conversation().submit("and now?")
        wait_until(lambda: has_ended(later), lambda: worker.log)
        assert len(model.requests) == 2
    turn.refresh_from_db()
    assert turn.status == "cancelled"
    assert [execution.status for execution in turn.tool_executions.order_by("ordinal")] == ["interrupted", "cancelled"]
    assert Effect.objects.filter(name="swallow").count() == 1
    assert "Traceback" not in worker.log
    assert failed_jobs() == []
    assert_clean()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_order_to_stop_is_followed_after_a_tool_that_swallows_it(processes: Processes, model_port: int, number: int):
    """The first signal raises nothing, and the second one's SystemExit is eaten: the worker leaves after the turn."""
    answer = [call("swallow", {"gate": "go"}), text("recovered")]
    with model_server(answer, port=model_port):
        turn = hostile.conversation().submit("hello")
        waiting = hostile.conversation().submit("wait")
        worker = processes.worker()
        wait_until(Note.objects.filter(name="swallowing").exists, lambda: worker.log)
        told_twice(worker, number, until=Note.objects.filter(name="swallowed").exists)
        Note.objects.create(name="go")
        assert worker.ended() == 0, worker.log
    as_if_nothing_had_happened(turn)
    assert outcome(turn) == "completed"
    waiting.refresh_from_db()
    assert (waiting.status, waiting.started_at) == ("pending", None)


@pytest.mark.kill
@pytest.mark.parametrize("worker_class", ["turnkit_django.dispatch.Worker", "tests.testapp.workers.ForkingWorker"])
@pytest.mark.parametrize("tool", ["misbehave", "misbehave_again"])
def test_an_exit_past_every_handler_is_a_death_and_not_a_success(
    processes: Processes, model_port: int, tool: str, worker_class: str
):
    quick = with_settings(LEASE_SECONDS=1)
    with model_server(Asker(tool), port=model_port) as model:
        turn = hostile.conversation().submit("_exit")
        first = processes.worker("--worker-class", worker_class, **quick)
        wait_until(Note.objects.filter(name="_exit").exists, lambda: first.log)
        if worker_class.endswith("dispatch.Worker"):
            assert first.ended() == 0
        else:
            first.end()
        with override_settings(TURNKIT={"MAX_RECOVERIES": 2}):
            workers = Workers(processes, most=4)

            def is_over() -> bool:
                workers.keep_alive()
                return has_ended(turn)

            maintained_until(is_over, lambda: processes.logs, seconds=90)
        assert model.violations == []
    runs = Note.objects.filter(name="_exit")
    if tool == "misbehave":
        assert (turn.status, turn.output_text, turn.attempts) == ("completed", "recovered", 1), turn.error
        assert (outcome(turn), runs.count()) == ("interrupted Interrupted", 1)
    else:
        assert (turn.status, turn.error["type"], turn.attempts) == ("failed", "WorkerDied", 3)
        assert (outcome(turn), runs.count()) == ("interrupted Interrupted", 3)
        assert len(set(runs.values_list("key", flat=True))) == 1
    assert_clean()
