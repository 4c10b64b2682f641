"""`manage.py check`: each check finds its mistake, says how to mend it, and is silent without it."""

import subprocess
import sys
from typing import Any

import pytest
from django.conf import settings
from django.core.checks import CheckMessage, run_checks
from django.db import connection
from django.test import override_settings
from psycopg import IsolationLevel

from turnkit_django.dispatch import Worker


class OurWorker(Worker):
    """A worker of an application."""


class QuietDispatcher:
    """A dispatcher that needs no queue."""


def found(**overridden: Any) -> list[CheckMessage]:
    with override_settings(**overridden):
        return run_checks(tags=["turnkit"])


def ids(**overridden: Any) -> list[str]:
    return [str(message.id) for message in found(**overridden)]


def test_a_sound_project_passes():
    assert found() == []


def test_another_database_than_postgresql_is_an_error(tmp_path):
    checked = subprocess.run(
        [sys.executable, "-m", "django", "check"],
        capture_output=True,
        text=True,
        env={"DATABASE_URL": f"sqlite:///{tmp_path}/db.sqlite3", "DJANGO_SETTINGS_MODULE": "tests.settings"},
    )
    assert checked.returncode == 1
    assert "(turnkit.E001) turnkit_django needs PostgreSQL, but the database 'default' is sqlite." in checked.stderr
    assert "HINT: Set ENGINE to django.db.backends.postgresql, or route the app `turnkit`" in checked.stderr
    assert "Traceback" not in checked.stderr


def test_binding_on_the_server_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "server_side_binding", True)
    [message] = found()
    assert (message.id, "`server_side_binding`" in message.msg) == ("turnkit.E004", True)


@pytest.mark.parametrize(
    ("level", "ids"),
    [
        (IsolationLevel.READ_COMMITTED, []),
        (IsolationLevel.REPEATABLE_READ, ["turnkit.E005"]),
        (IsolationLevel.SERIALIZABLE, ["turnkit.E005"]),
    ],
)
def test_another_isolation_level_is_an_error(monkeypatch: pytest.MonkeyPatch, level: IsolationLevel, ids: list[str]):
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "isolation_level", level)
    assert [message.id for message in found()] == ids


def test_an_unknown_setting_is_an_error_with_the_nearest_name():
    [message] = found(TURNKIT={"MAX_ITERATION": 5})
    assert (message.id, message.msg, message.hint) == (
        "turnkit.E002",
        "unknown setting TURNKIT['MAX_ITERATION'].",
        "Did you mean 'MAX_ITERATIONS'?",
    )


@pytest.mark.parametrize("value", ["many", -1, [], None])
def test_a_wrong_value_is_an_error(value: Any):
    [message] = found(TURNKIT={"MAX_ITERATIONS": value})
    assert (message.id, repr(value)[:4] in message.msg) == ("turnkit.E003", True)


@pytest.mark.parametrize("value", [[], "x", 5, None])
def test_a_setting_that_is_no_dict_is_an_error(value: Any):
    [message] = found(TURNKIT=value)
    assert (message.id, "expected the setting `TURNKIT` to be a dict" in message.msg) == ("turnkit.E003", True)


@pytest.mark.parametrize("value", [[], {}, None, 5])
def test_a_wrong_queue_name_is_told_and_breaks_no_other_check(value: Any):
    assert "turnkit.E003" in ids(TURNKIT={"QUEUE": value})


def test_every_mistake_is_told_at_once():
    wrong = {"A": 1, "LEASE_SECONDS": 0, "QUEUE": "other"}
    assert sorted(ids(TURNKIT=wrong)) == ["turnkit.E002", "turnkit.E003", "turnkit.W002"]


@pytest.mark.parametrize("rq", [{}, {"WORKER_CLASS": "rq.Worker"}, {"WORKER_CLASS": "no.such.Worker"}])
def test_a_worker_that_cannot_read_json_jobs_is_warned_of(rq: dict[str, str]):
    [message] = found(RQ=rq)
    assert (message.id, "turnkit_django.dispatch.Worker" in message.hint, "--serializer json" in message.hint) == (
        "turnkit.W001",
        True,
        True,
    )


@pytest.mark.parametrize("worker", ["turnkit_django.dispatch.Worker", "tests.test_checks.OurWorker", OurWorker])
def test_our_worker_and_its_children_are_fine(worker: Any):
    assert ids(RQ={"WORKER_CLASS": worker}) == []


def test_a_queue_that_is_not_configured_is_warned_of():
    [message] = found(TURNKIT={"QUEUE": "other"})
    assert (message.id, message.msg) == ("turnkit.W002", "RQ_QUEUES has no queue 'other', so no wake-up can be sent.")
    assert ids(TURNKIT={"QUEUE": "other"}, RQ_QUEUES={"other": {"URL": "redis://x"}}) == []


def test_without_django_rq_no_wake_up_can_be_sent():
    apps = [name for name in settings.INSTALLED_APPS if name != "django_rq"]
    [message] = found(INSTALLED_APPS=apps)
    assert (message.id, "turnkit_reconcile --run" in message.hint) == ("turnkit.W002", True)


def test_another_dispatcher_needs_neither_worker_nor_queue():
    assert ids(TURNKIT={"DISPATCHER": "tests.test_checks.QuietDispatcher"}, RQ={}, RQ_QUEUES={}) == []
