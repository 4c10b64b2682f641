"""Connections: whose transaction it is, what passes, and what a fork must forget."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, InterfaceError, OperationalError, connection, transaction

from tests.concurrency.threads import Held, observer
from tests.testapp.agents import helper
from turnkit_django.engine import runner
from turnkit_django.errors import StateError
from turnkit_django.models import Conversation, Turn
from turnkit_django.store import connections, transitions
from turnkit_django.store.records import AttemptEnd
from turnkit_django.testing import ScriptedModel, assert_clean, drain, text

real = pytest.mark.django_db(transaction=True)


def backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid: int = cursor.fetchone()[0]
    return pid


def killed() -> None:
    pid = backend()
    with observer() as other:
        other.execute("SELECT pg_terminate_backend(%s)", [pid])
    backend()


def locked() -> None:
    one = helper.conversation()
    with Held(lambda: Conversation.objects.select_for_update(no_key=True).get(pk=one.pk)).open(), transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '10ms'")
        Conversation.objects.select_for_update(no_key=True).get(pk=one.pk)


def doubled() -> None:
    one = helper.conversation()
    Conversation.objects.bulk_create([Conversation(id=one.pk, agent_name="x")])


def slow() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = '10ms'")
        cursor.execute("SELECT pg_sleep(60)")


@real
@pytest.mark.parametrize(
    ("how", "kind", "is_lost", "is_repeatable"),
    [
        (killed, OperationalError, True, True),
        (locked, OperationalError, False, True),
        (slow, OperationalError, False, False),
        (doubled, IntegrityError, False, False),
    ],
)
def test_errors_are_classed_by_what_is_known_of_the_transaction(
    how: Callable[[], None], kind: type[DatabaseError], is_lost: bool, is_repeatable: bool
):
    with pytest.raises(kind) as raised:
        how()
    connection.close()

    assert (connections.is_lost(raised.value), connections.is_repeatable(raised.value)) == (is_lost, is_repeatable)


def test_an_error_of_the_interface_means_a_lost_connection():
    assert connections.is_lost(InterfaceError("the connection is closed"))
    assert not connections.is_lost(DatabaseError("something else"))


@real
def test_a_worker_outlives_the_death_of_its_backend_and_of_all_others_in_the_pool():
    helper.conversation().submit("please")
    with observer() as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        (one,) = transitions.claim(runner.holder())
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    transitions.fail(one.claim, error={"type": "X"}, attempt=AttemptEnd.UNSENT)

    assert Turn.objects.get().status == "failed"


@real
def test_a_transaction_of_the_application_is_told_from_a_free_connection():
    assert not connections.in_application_transaction()
    with transaction.atomic():
        assert connections.in_application_transaction()
        with transaction.atomic():
            assert connections.in_application_transaction()


@pytest.mark.django_db
def test_the_transaction_of_a_testcase_is_not_the_applications():
    assert not connections.in_application_transaction()
    with transaction.atomic():
        assert connections.in_application_transaction()


@real
@pytest.mark.parametrize(
    "work", [lambda: runner.run_next(), lambda: helper.conversation().ask("please"), lambda: helper.run("please")]
)
def test_nothing_runs_inside_a_transaction_of_the_application(work: Callable[[], object]):
    with transaction.atomic(), pytest.raises(StateError, match="inside a transaction that the application opened"):
        work()
    assert (Turn.objects.count(), Conversation.objects.count()) in {(0, 0), (0, 1)}


@real
def test_a_connection_is_given_back_but_never_inside_a_transaction():
    backend()
    connections.release()
    assert connection.connection is None
    with transaction.atomic():
        backend()
        connections.release()
        assert connection.connection is not None


@real
def test_the_bounds_hold_for_the_transaction_and_not_beyond():
    names = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")

    def bounds() -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT current_setting(name) FROM unnest(%s::text[]) WITH ORDINALITY AS x(name, n)", [list(names)]
            )
            return [row[0] for row in cursor.fetchall()]

    before = bounds()
    with connections.bounded(), transaction.atomic():
        inside = bounds()

    assert inside == ["10s", "1min", "1min"]
    assert bounds() == before


@pytest.fixture
def stricter_default() -> Iterator[None]:
    """New connections begin their transactions at REPEATABLE READ, as the server or the role may say."""
    options = connection.settings_dict["OPTIONS"]
    connection.close()
    connection.close_pool()
    options["options"] = "-c default_transaction_isolation=repeatable\\ read"
    try:
        yield
    finally:
        del options["options"]
        connection.close()
        connection.close_pool()


@real
@pytest.mark.usefixtures("stricter_default")
@pytest.mark.parametrize("kind", [connections.bounded, connections.unbounded])
def test_a_move_reads_what_is_committed_whatever_the_default_is(kind: Callable[[], AbstractContextManager[None]]):
    def level() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SHOW transaction_isolation")
            found: str = cursor.fetchone()[0]
            return found

    with kind(), transaction.atomic():
        inside = level()

    assert (inside, level()) == ("read committed", "repeatable read")


@real
@pytest.mark.usefixtures("stricter_default")
def test_lanes_that_many_write_to_lose_no_turn_under_a_stricter_default(
    turnkit_model: Callable[[Any], ScriptedModel], caplog: pytest.LogCaptureFixture
):
    """B44: no error of serialization is a fault of a turn, and no model call is made twice for one."""
    model = turnkit_model(lambda _request: text("done"))
    lanes = [helper.conversation() for _ in range(2)]

    def work(number: int) -> None:
        try:
            for place in range(10):
                lanes[place % 2].submit(f"{number} {place}")
                runner.run_next()
        finally:
            connection.close()

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(work, range(5)))
    drain()

    assert (Turn.objects.filter(status="completed", attempts=0).count(), len(model.requests)) == (50, 50)
    assert [record for record in caplog.records if getattr(record, "event", "") == "turn.fault"] == []
    assert_clean(model=model)


@real
def test_a_lost_connection_is_closed_without_a_pool_too():
    options = connection.settings_dict["OPTIONS"]
    connection.close()
    connection.close_pool()
    pool = options.pop("pool")
    try:
        with pytest.raises(OperationalError):
            killed()
        connections.drop()
        assert backend() > 0
    finally:
        connection.close()
        options["pool"] = pool


@real
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_makes_its_own_connection_and_the_parents_goes_on():
    connections.forget_after_fork()
    mine = backend()
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(writing, str(backend()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        theirs = told.read()
    os.waitpid(child, 0)

    assert theirs.isdigit()
    assert int(theirs) != mine
    assert backend() == mine


@pytest.mark.django_db(transaction=True)
def test_what_was_open_before_is_left_alone():
    connection.set_autocommit(False)
    try:
        before = connections.open_blocks()
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        assert not connections.roll_back_since(before)
        assert connection.connection is not None
    finally:
        connection.close()
