"""B65, the worker's part: rows that the application deletes while somebody is about to use them."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, connection, connections, transaction

from tests.concurrency.threads import blocked, observer
from tests.faults.processes import Processes, failed_jobs
from tests.faults.rescue import has_ended
from tests.testapp.fault_agents import fragile
from tests.testapp.models import Effect, Note
from tests.waiting import wait_until
from turnkit_django import Agent, failpoints, register, tool
from turnkit_django.agents import registry
from turnkit_django.engine import reconcile, runner
from turnkit_django.errors import InputError, PermanentModelError, TransientModelError
from turnkit_django.models import Conversation, Message, ToolExecution, Turn
from turnkit_django.store import reads
from turnkit_django.testing import assert_clean, call, drain, model_server, text

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]

deeds: list[Callable[[], object]] = []
ran: list[int] = []


@tool
def careless(n: int = 0) -> dict[str, int]:
    """Do what the test has planned for this run."""
    ran.append(n)
    if deeds:
        deeds.pop(0)()
    return {"n": n}


@tool(recovery="replay_safe")
def lookup(n: int = 0) -> dict[str, int]:
    """The same, and it may be repeated."""
    return careless(n)


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Agent:
    monkeypatch.setattr(registry, "_agents", dict(registry._agents))
    deeds.clear()
    ran.clear()
    return register(Agent(name="eraser", model="openai/gpt-5-mini", tools=[careless, lookup]))


DELETIONS: dict[str, Callable[[], object]] = {
    "conversation": lambda: Conversation.objects.get().delete(),
    "turn": lambda: Turn.objects.get().delete(),
}
PARTS: dict[str, Callable[[], object]] = {
    "execution": lambda: ToolExecution.objects.get(ordinal=0).delete(),
    "every execution": lambda: ToolExecution.objects.all().delete(),
    "question": lambda: Message.objects.get(role="user").delete(),
    "proposal": lambda: Message.objects.get(kind="tool_call").delete(),
    "every message": lambda: Message.objects.all().delete(),
}


def batch(name: str) -> list[Any]:
    return [call(name, {"n": 1}), call(name, {"n": 2})]


def no_orphans() -> None:
    """Foreign keys are checked at COMMIT: a row that points nowhere would be an error here."""
    connection.check_constraints()
    assert not ToolExecution.objects.exclude(turn__in=Turn.objects.all()).exists()
    assert not Message.objects.exclude(conversation__in=Conversation.objects.all()).exists()


def quietly(records: list[logging.LogRecord], *, says: str) -> None:
    """Somebody who reads the log learns why, and is not woken at night for it."""
    ours = [record for record in records if record.name == "turnkit"]
    assert [record for record in ours if record.levelno > logging.WARNING or "Traceback" in record.getMessage()] == []
    assert any(says in record.getMessage() for record in ours), [record.getMessage() for record in ours]


@pytest.mark.parametrize("start", ["background", "inline"])
@pytest.mark.parametrize("name", ["careless", "lookup"])
@pytest.mark.parametrize("what", DELETIONS)
def test_a_turn_that_is_deleted_while_a_tool_runs_stops_there(
    agent: Agent, turnkit_model: Any, caplog: pytest.LogCaptureFixture, what: str, name: str, start: str
):
    caplog.set_level(logging.INFO, "turnkit")
    model = turnkit_model([batch(name), text("next")])
    deeds.append(DELETIONS[what])
    conversation = agent.conversation()
    if start == "inline":
        with pytest.raises(Turn.DoesNotExist, match=r"turn_\w+ is not in the database: it was deleted"):
            conversation.ask("go")
    else:
        conversation.submit("go")
        drain()
    assert (ran, len(model.requests), Turn.objects.count()) == ([1], 1, 0)
    quietly(caplog.records, says="was deleted while it ran")
    no_orphans()
    later = agent.conversation().submit("and now?")
    assert drain() == 1
    later.refresh_from_db()
    assert later.output_text == "next"
    assert_clean()


@pytest.mark.parametrize("start", ["background", "inline"])
@pytest.mark.parametrize("name", ["careless", "lookup"])
@pytest.mark.parametrize("what", PARTS)
def test_a_turn_that_loses_a_part_of_its_history_goes_on_without_it(
    agent: Agent, turnkit_model: Any, caplog: pytest.LogCaptureFixture, what: str, name: str, start: str
):
    """Whoever deletes rows by hand gets what is left; the strict model refuses a request that is out of order."""
    caplog.set_level(logging.INFO, "turnkit")
    model = turnkit_model([batch(name), text("done it"), text("next")])
    deeds.append(PARTS[what])
    conversation = agent.conversation()
    turn = conversation.ask("go") if start == "inline" else conversation.submit("go")
    drain()
    turn.refresh_from_db()
    assert (turn.status, turn.output_text, turn.attempts) == ("completed", "done it", 0), turn.error
    assert ran == ([1] if (what, name) == ("every execution", "careless") else [1, 2])
    quietly(caplog.records, says="because its row is gone" if "execution" in what else "completed")
    no_orphans()
    later = conversation.ask("and now?")
    assert (later.output_text, model.violations, len(model.requests)) == ("next", [], 3)
    assert reconcile.run_pass(batch=100).total == 0


@pytest.mark.parametrize("move", ["store_reply", "start_tool", "settle_tool", "complete", "fail", "park", "release"])
@pytest.mark.parametrize("what", DELETIONS)
def test_a_turn_that_is_deleted_before_any_write_of_its_worker_stops_there(
    agent: Agent, turnkit_model: Any, caplog: pytest.LogCaptureFixture, what: str, move: str
):
    caplog.set_level(logging.INFO, "turnkit")
    endings = {"fail": PermanentModelError("no"), "park": TransientModelError("later"), "release": LookupError("bug")}
    turnkit_model([call("careless", {"n": 1}), endings.get(move, text("done it"))])
    agent.conversation().submit("go")
    hits: list[str] = []

    def delete(point: str) -> None:
        if point == f"{move}.before":
            failpoints.arm(None)
            hits.append(point)
            thread = threading.Thread(target=in_another_connection(DELETIONS[what]))
            thread.start()
            thread.join()

    failpoints.arm(delete)
    try:
        assert runner.run_next()
    finally:
        failpoints.arm(None)
    assert (len(hits), Turn.objects.count()) == (1, 0)
    if move != "release":  # there the model client's own bug is in the log
        quietly(caplog.records, says="was deleted while it ran")
    no_orphans()
    assert drain() == 0
    assert_clean()


@pytest.mark.parametrize("start", ["submit", "ask"])
@pytest.mark.parametrize("what", DELETIONS)
def test_a_sub_agent_whose_root_is_deleted_while_it_runs_goes_on_as_a_root_of_its_own(
    agent: Agent, turnkit_model: Any, caplog: pytest.LogCaptureFixture, what: str, start: str
):
    caplog.set_level(logging.INFO, "turnkit")
    leaf = register(Agent(name="leaf", model="leaf", instructions="Be a leaf."))
    middle = register(Agent(name="middle", model="middle", tools=[careless], sub_agents=[leaf]))
    top = register(Agent(name="top", model="top", sub_agents=[middle]))
    asks = {"top": [call("middle", {"task": "do it"})], "middle": [call("careless"), call("leaf", {"task": "do it"})]}
    model = turnkit_model(lambda request: asks[request.model].pop(0) if asks.get(request.model) else text("done"))
    conversation = top.conversation()
    deeds.append(lambda: conversation.delete() if what == "conversation" else conversation.turns.all().delete())
    if start == "ask":
        with pytest.raises(Turn.DoesNotExist, match=r"turn_\w+ is not in the database"):
            conversation.ask("go")
    else:
        conversation.submit("go")
    drain()

    rows = {turn.agent_name: turn for turn in Turn.objects.all()}
    assert {name: (turn.status, turn.attempts) for name, turn in rows.items()} == {
        "middle": ("completed", 0),
        "leaf": ("completed", 0),
    }
    assert (rows["leaf"].root, rows["leaf"].parent) == (rows["middle"], rows["middle"])
    assert len(model.requests) == 5
    quietly(caplog.records, says="completed")
    no_orphans()
    assert_clean()


def in_another_connection(work: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        try:
            work()
        finally:
            connections.close_all()

    return run


@pytest.mark.parametrize("what", DELETIONS)
def test_a_turn_that_is_deleted_before_its_claim_is_not_missed(agent: Agent, turnkit_model: Any, what: str):
    model = turnkit_model([text("next")])
    agent.conversation().submit("go")
    DELETIONS[what]()
    assert drain() == 0
    agent.conversation().submit("and now?")
    assert (drain(), len(model.requests)) == (1, 1)
    no_orphans()
    assert_clean(model=model)


SCANS = ["expired", "ready", "overdue"]


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("what", DELETIONS)
def test_a_row_that_is_deleted_between_the_scan_of_maintenance_and_its_move_is_no_error(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str, scan: str
):
    turn = agent.conversation().submit("go")
    found = {"expired": (turn.pk, "token", 0)}.get(scan, turn.pk)

    def seen(*, limit: int) -> list[Any]:
        if Turn.objects.exists():
            DELETIONS[what]()
        return [found]

    monkeypatch.setattr(reads, scan, seen)
    counts = reconcile.run_pass(batch=100)
    assert (counts.total, counts.errors) == (0, 0)
    assert caplog.records == []


def test_verbs_on_a_deleted_turn_name_it(agent: Agent, turnkit_model: Any):
    turnkit_model([])
    turn, run = agent.conversation().prepare("go"), agent.prepare("go")
    ids = turn.pk, run.turn.pk
    Turn.objects.all().delete()
    for verb in (turn.cancel, turn.submit, turn.run, turn.preview):
        with pytest.raises(Turn.DoesNotExist, match=f"{ids[0]} is not in the database: it was deleted"):
            verb()
    for verb in (run.cancel, run.submit, run.run, run.preview, run.refresh):
        with pytest.raises(Turn.DoesNotExist, match=f"{ids[1]} is not in the database: it was deleted"):
            verb()


def test_verbs_on_a_deleted_conversation_name_it(agent: Agent, turnkit_model: Any):
    model = turnkit_model([])
    conversation = agent.conversation()
    Conversation.objects.all().delete()
    for verb in (conversation.say, conversation.submit, conversation.prepare, conversation.ask):
        with pytest.raises(Conversation.DoesNotExist, match=f"{conversation.pk} is not in the database"):
            verb("go")
    with pytest.raises(Conversation.DoesNotExist, match=f"{conversation.pk} is not in the database"):
        conversation.run()
    assert (model.requests, Message.objects.count()) == ([], 0)


def test_an_object_that_was_deleted_itself_says_that_it_is_not_saved(agent: Agent):
    conversation = agent.conversation()
    conversation.delete()
    for verb in (conversation.say, conversation.submit, conversation.prepare, conversation.ask):
        with pytest.raises(InputError, match="the conversation is not saved"):
            verb("go")


def test_cancel_and_delete_in_one_transaction_are_safe_against_a_worker_that_writes(agent: Agent, turnkit_model: Any):
    """The recipe of the docs: the worker waits for the lane, and then finds that there is nothing to write to."""
    turnkit_model([batch("careless")])
    conversation = agent.conversation()
    turn = conversation.submit("go")
    problems: list[BaseException] = []

    def work() -> None:
        try:
            runner.run_next()
        except BaseException as problem:
            problems.append(problem)

    worker = threading.Thread(target=in_another_connection(work))
    is_running, may_return = threading.Event(), threading.Event()

    def block() -> None:
        is_running.set()
        assert may_return.wait(30)

    deeds.append(block)
    worker.start()
    assert is_running.wait(30)
    with observer() as watching, transaction.atomic():
        turn.cancel()
        may_return.set()
        wait_until(lambda: blocked(watching) == 1)
        conversation.delete()
    worker.join()
    assert (problems, ran, Turn.objects.count()) == ([], [1], 0)
    no_orphans()
    assert_clean()


def test_a_worker_takes_the_next_turn_after_one_that_was_deleted_under_it(processes: Processes, model_port: int):
    kinds = [*DELETIONS, *PARTS]
    answers = {"go": [call("charge_unknown", {"gate": "go"}), call("charge_unknown")]}

    def answer(request: Any) -> Any:
        last = request.messages[-1]
        return answers["go"] if last["role"] == "user" and last["content"] == "go" else text("done it")

    with model_server(answer, port=model_port) as model:
        worker = processes.worker()
        for what in kinds:
            asked, charged = len(model.requests), Effect.objects.count()
            conversation = fragile.conversation()
            turn = conversation.submit("go")
            wait_until(Note.objects.filter(name="ran").exists, lambda: worker.log)
            (DELETIONS | PARTS)[what]()
            Note.objects.all().delete()
            Note.objects.create(name="go")
            later = fragile.conversation().submit("and now?")
            wait_until(lambda: has_ended(later), lambda: worker.log)  # noqa: B023
            if what in DELETIONS:
                assert (len(model.requests) - asked, Effect.objects.count() - charged) == (2, 1), worker.log
            else:
                assert has_ended(turn)
                assert turn.status == "completed"
            no_orphans()
            Conversation.objects.all().delete()
            Note.objects.all().delete()
        assert model.violations == []
        assert worker.is_alive
    assert "Traceback" not in worker.log
    assert IntegrityError.__name__ not in worker.log
    assert failed_jobs() == []
