"""`manage.py turnkit_reconcile`, in all its options."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings

from tests.testapp.agents import helper
from tests.waiting import wait_until
from turnkit_django.models import Turn
from turnkit_django.models.querysets import ClockTime
from turnkit_django.testing import Crash, assert_clean, call, crash_at, drain, text

pytestmark = pytest.mark.django_db
NOTHING = "recovered 0, readied 0, overdue 0, delivered 0, continued 0, woken 0, unsent 0, run 0, errors 0\n"


def reconcile(*options: str) -> str:
    out = StringIO()
    call_command("turnkit_reconcile", *options, stdout=out)
    return out.getvalue()


def dead_turns(count: int) -> list[Turn]:
    """Turns whose workers died."""
    turns = [helper.conversation().submit("please") for _ in range(count)]
    for _ in turns:
        with crash_at("claimed"), pytest.raises(Crash):
            drain(max_seconds=0)
        Turn.objects.filter(status="running").update(claimed_by="elsewhere:1:1")
    Turn.objects.update(lease_expires_at=ClockTime() - timedelta(seconds=1))
    return turns


def test_without_work_one_pass_says_so():
    assert reconcile() == NOTHING


def test_a_pass_takes_over_and_says_what_it_did(turnkit_model):
    model = turnkit_model([])
    [turn] = dead_turns(1)
    assert reconcile() == NOTHING.replace("recovered 0", "recovered 1")
    turn.refresh_from_db()
    assert (turn.status, len(model.requests)) == ("pending", 0)


def test_a_batch_bounds_a_pass_and_passes_finish_the_rest(turnkit_model):
    turnkit_model([])
    dead_turns(3)
    assert [reconcile("--batch", "2").split(",")[0] for _ in range(3)] == ["recovered 2", "recovered 1", "recovered 0"]


def test_run_also_executes_what_is_due_without_redis(turnkit_model):
    model = turnkit_model([call("unsafe", {"n": 1}), text("done")])
    queues = {"turnkit": {"URL": "redis://127.0.0.1:1/0?socket_connect_timeout=1"}}
    with override_settings(RQ_QUEUES=queues):
        turn = helper.conversation().submit("please")
        assert "run 1, errors 0" in reconcile("--run")
    turn.refresh_from_db()
    assert (turn.status, turn.output_text) == ("completed", "done")
    assert_clean(model=model)


@contextmanager
def poisoned(turn: Turn) -> Iterator[None]:
    """PostgreSQL refuses to change the status of that row."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.id = '{turn.pk}' "
            "AND NEW.status <> OLD.status THEN RAISE EXCEPTION 'poisoned'; END IF; RETURN NEW; END $$;"
            "CREATE TRIGGER poison BEFORE UPDATE ON turnkit_turn FOR EACH ROW EXECUTE FUNCTION poison()"
        )
    try:
        yield
    finally:
        with connection.cursor() as cursor:  # a pass gives the connection back
            cursor.execute("DROP TRIGGER poison ON turnkit_turn; DROP FUNCTION poison()")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("verbosity", ["0", "1"])
def test_a_pass_that_could_not_handle_a_row_does_the_others_and_fails(verbosity: str):
    bad, good = (helper.conversation().submit("please") for _ in range(2))
    Turn.objects.update(deadline_at=ClockTime() - timedelta(seconds=1))
    out = StringIO()
    with poisoned(bad), pytest.raises(CommandError, match="1 rows could not be handled") as failure:
        call_command("turnkit_reconcile", "--verbosity", verbosity, stdout=out)

    assert failure.value.returncode == 1
    assert "overdue 1, delivered 0, continued 0, woken 0, unsent 0, run 0, errors 1" in out.getvalue()
    bad.refresh_from_db()
    good.refresh_from_db()
    assert (bad.status, good.status) == ("pending", "failed")
    assert bad.error["type"] == "ProgrammingError"
    assert reconcile() == NOTHING  # it is set aside for a while


def test_a_quiet_pass_without_failures_prints_nothing():
    dead_turns(1)

    assert reconcile("--verbosity", "0") == ""
    assert reconcile() == NOTHING  # the quiet one did its work


@pytest.mark.parametrize("batch", ["0", "-1", "1000001"])
def test_a_batch_that_makes_no_sense_is_refused_by_name(batch: str):
    with pytest.raises(CommandError) as refused:
        reconcile("--batch", batch)

    assert str(refused.value) == f"--batch: expected a positive whole number, at most 1000000, got {batch}"


def test_the_largest_batch_is_taken():
    assert reconcile("--batch", "1000000") == NOTHING


@pytest.mark.parametrize("pause", ["0", "-0.5", "nan", "inf"])
def test_a_pause_that_makes_no_sense_is_refused_by_name(pause: str):
    with pytest.raises(CommandError) as refused:
        reconcile("--loop", pause)

    assert str(refused.value) == f"--loop: expected a positive number of seconds, got {pause}"


@pytest.mark.parametrize("options", [("--batch", "many"), ("--loop", "soon"), ("--walk",)])
def test_what_is_no_number_or_no_option_is_refused(options: tuple[str, ...]):
    with pytest.raises(CommandError, match=options[0]):
        reconcile(*options)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_loop_works_until_it_is_told_to_stop(number: signal.Signals):
    turn = helper.conversation().submit("please")
    Turn.objects.update(deadline_at=ClockTime() - timedelta(seconds=1))
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    command = [sys.executable, "-m", "django", "turnkit_reconcile", "--loop", "0.05"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as loop:
        try:
            lines = [loop.stdout.readline() for _ in range(2)]
            loop.send_signal(number)
            _, errors = loop.communicate(timeout=20)
        finally:
            loop.kill()
    told = f"turn {turn.pk} of agent helper failed: BudgetError: turn timed out"
    assert (loop.returncode, errors.splitlines()) == (0, [told])
    assert [line.split(", delivered")[0] for line in lines] == [
        "recovered 0, readied 0, overdue 1",
        "recovered 0, readied 0, overdue 0",
    ]
    turn.refresh_from_db()
    assert turn.status == "failed"
    assert_clean()


@pytest.fixture
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_handlers")
def test_a_stop_order_is_followed_between_two_turns(turnkit_model):
    def stopping(request):
        os.kill(os.getpid(), signal.SIGTERM)
        return text("done")

    turnkit_model(stopping)
    turns = [helper.conversation().submit("please") for _ in range(3)]
    assert "run 1, errors 0" in reconcile("--loop", "60", "--run")
    assert sorted(Turn.objects.filter(pk__in=[turn.pk for turn in turns]).values_list("status", flat=True)) == [
        "completed",
        "pending",
        "pending",
    ]


@pytest.mark.usefixtures("_handlers")
def test_maintenance_does_not_wait_until_work_stops_flowing_in(turnkit_model):
    replies = []

    def flowing(request):
        replies.append(request)
        helper.conversation().submit("and more")
        threading.Event().wait(0.02)
        if len(replies) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return text("done")

    turnkit_model(flowing)
    helper.conversation().submit("please")
    told = reconcile("--loop", "0.01", "--run").splitlines()
    assert [line.split(", ")[7] for line in told] == ["run 1", "run 1", "run 1"]


@pytest.mark.django_db(transaction=True)
def test_a_loop_outlives_an_error_of_the_database():
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    command = [sys.executable, "-m", "django", "turnkit_reconcile", "--loop", "0.05"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as loop:
        try:
            assert loop.stdout.readline() == NOTHING
            with connection.cursor() as cursor:
                cursor.execute("ALTER TABLE turnkit_turn RENAME TO elsewhere")
                try:
                    told = loop.stderr.readline()
                finally:
                    cursor.execute("ALTER TABLE elsewhere RENAME TO turnkit_turn")
            turn = helper.conversation().submit("please")
            Turn.objects.update(deadline_at=ClockTime() - timedelta(seconds=1))
            wait_until(lambda: Turn.objects.get(pk=turn.pk).status == "failed", lambda: loop.poll())
            loop.send_signal(signal.SIGTERM)
            loop.communicate(timeout=20)
        finally:
            loop.kill()
    assert told.startswith("reconcile: the database failed; trying again: ProgrammingError: relation")
    assert loop.returncode == 0
