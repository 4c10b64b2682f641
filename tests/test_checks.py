"""`manage.py check`: each check finds its mistake, says how to mend it, and is silent without it."""

import os
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.checks import CheckMessage, run_checks
from django.core.management import call_command
from django.db import connection
from django.test import override_settings
from django.utils import timezone
from psycopg import IsolationLevel
from rq.serializers import DefaultSerializer, JSONSerializer

from turnkit_django import jobs
from turnkit_django.dispatch import RQDispatcher, Worker
from turnkit_django.dispatch import rq as rq_door


class OurWorker(Worker):
    """A worker of an application."""


class QuietDispatcher:
    """A dispatcher that needs no queue."""

    def send_wake(self) -> None: ...

    def is_stopping(self) -> bool:
        return False

    def note_reconcile(self) -> None: ...

    def last_reconcile(self) -> datetime | None: ...


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
    assert ids(TURNKIT={"QUEUE": "other"}, RQ_QUEUES={"other": {"URL": "redis://x", "SERIALIZER": "json"}}) == []


def test_without_django_rq_no_wake_up_can_be_sent():
    apps = [name for name in settings.INSTALLED_APPS if name != "django_rq"]
    [message] = found(INSTALLED_APPS=apps)
    assert (message.id, "turnkit_reconcile --run" in message.hint) == ("turnkit.W002", True)


def test_another_dispatcher_needs_neither_worker_nor_queue():
    assert ids(TURNKIT={"DISPATCHER": "tests.test_checks.QuietDispatcher"}, RQ={}, RQ_QUEUES={}) == []


@pytest.mark.parametrize("lacking", ["CLIENT", "DISPATCHER"])
def test_a_class_of_another_kind_is_told_with_the_methods_it_lacks(lacking: str):
    [message] = found(TURNKIT={lacking: "tests.test_checks.OurWorker"})
    wanted = {"CLIENT": "which lacks `validate`, `complete`", "DISPATCHER": "which lacks `send_wake`"}[lacking]
    assert (message.id, wanted in message.msg) == ("turnkit.E003", True)


def test_a_database_without_a_pool_is_warned_of(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(connection.settings_dict["OPTIONS"], "pool")
    [message] = found()
    assert (message.id, '"OPTIONS": {"pool": True}' in message.hint) == ("turnkit.W003", True)


def test_views_that_are_transactions_are_noted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    [message] = found()
    assert (message.id, message.is_serious(), "non_atomic_requests" in message.hint) == ("turnkit.I001", False, True)


def test_a_backend_of_another_name_is_asked_for_a_pool_too(monkeypatch: pytest.MonkeyPatch):
    """Such as PostGIS, or one that counts queries."""
    monkeypatch.setitem(connection.settings_dict, "ENGINE", "django.contrib.gis.db.backends.postgis")
    monkeypatch.delitem(connection.settings_dict["OPTIONS"], "pool")
    assert ids() == ["turnkit.W003"]


def test_a_pool_with_connections_that_are_kept_needs_both_settings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(connection.settings_dict["OPTIONS"], "pool")
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 60)
    [message] = found()
    assert "CONN_MAX_AGE to 0, which a pool needs" in message.hint


def test_a_database_that_commits_nothing_by_itself_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(connection.settings_dict, "AUTOCOMMIT", False)
    [message] = found()
    assert (message.id, "never committed" in message.msg) == ("turnkit.E007", True)


class ToNowhere:
    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "nowhere"


def test_a_router_that_leads_nowhere_is_an_error_of_one_line():
    [message] = found(DATABASE_ROUTERS=["tests.test_checks.ToNowhere"])
    assert (message.id, "'nowhere', which DATABASES does not have" in message.msg) == ("turnkit.E001", True)


@pytest.mark.parametrize("queue", [None, "redis://x", []])
def test_a_queue_that_is_no_dict_is_warned_of(queue: Any):
    assert ids(RQ_QUEUES={"turnkit": queue}) == ["turnkit.W002"]


class OurDispatcher(RQDispatcher):
    """A dispatcher of an application that still uses RQ."""


def test_a_child_of_our_dispatcher_needs_worker_and_queue_too():
    settings = {"DISPATCHER": "tests.test_checks.OurDispatcher"}
    assert sorted(ids(TURNKIT=settings, RQ={}, RQ_QUEUES={})) == ["turnkit.W001", "turnkit.W002"]


def test_a_worker_class_that_is_not_there_is_told_as_such():
    [message] = found(RQ={"WORKER_CLASS": "turnkit_django.Worker"})
    assert "cannot be imported" in message.msg


@pytest.mark.parametrize("path", [".f", "..events.f", "tests.raising.f", "x" * 300])
def test_a_path_whatever_it_raises_is_one_message(path: str):
    for name in ("CLIENT", "ON_EVENT"):
        [message] = found(TURNKIT={name: path})
        assert (message.id, "expected the dotted path of" in message.msg) == ("turnkit.E003", True)


@pytest.mark.parametrize(
    ("serializer", "ids_found"),
    [
        ("json", []),
        ("rq.serializers.JSONSerializer", []),
        (JSONSerializer, []),
        (None, ["turnkit.W004"]),
        ("pickle", ["turnkit.W004"]),
        (DefaultSerializer, ["turnkit.W004"]),
    ],
)
def test_a_queue_whose_wake_ups_the_dashboard_cannot_read_is_warned_of(serializer: Any, ids_found: list[str]):
    queue = {"URL": "redis://x"} | ({} if serializer is None else {"SERIALIZER": serializer})
    assert ids(RQ_QUEUES={"turnkit": queue}) == ids_found


AWAY = {"URL": "redis://127.0.0.1:1/0", "SERIALIZER": "json"}


class TestReconcile:
    @pytest.fixture(autouse=True)
    def no_pass_is_remembered(self):
        redis, key = rq_door._connection("turnkit"), rq_door.RECONCILE_KEY.format(queue="turnkit")
        redis.delete(key)
        yield
        redis.delete(key)

    def deployed(self) -> list[CheckMessage]:
        return run_checks(tags=["turnkit"], include_deployment_checks=True)

    def test_is_asked_for_in_a_deployment_only(self):
        assert run_checks(tags=["turnkit"]) == []
        [message] = self.deployed()
        assert (message.id, "was ever seen" in message.msg) == ("turnkit.W005", True)
        assert "every minute from cron" in message.hint

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("run", [lambda: call_command("turnkit_reconcile"), jobs.reconcile])
    def test_is_seen_when_it_runs(self, run: Any):
        run()
        assert self.deployed() == []

    def test_that_stopped_is_told_with_the_time_it_was_seen(self, monkeypatch: pytest.MonkeyPatch):
        RQDispatcher().note_reconcile()
        later = timezone.now() + timedelta(minutes=6)
        monkeypatch.setattr(timezone, "now", lambda: later)
        [message] = self.deployed()
        assert (message.id, "was seen at 20" in message.msg, " UTC; nobody" in message.msg) == (
            "turnkit.W005",
            True,
            True,
        )

    @pytest.mark.parametrize("value", [[], "x", None])
    def test_is_not_asked_for_while_the_settings_cannot_be_read(self, value: Any):
        with override_settings(TURNKIT=value):
            [message] = self.deployed()
        assert message.id == "turnkit.E003"

    def test_cannot_be_seen_while_redis_is_away(self):
        with override_settings(RQ_QUEUES={"away": AWAY}, TURNKIT={"QUEUE": "away"}):
            [message] = self.deployed()
        assert (message.id, "cannot be seen: Error 111" in message.msg) == ("turnkit.W005", True)
        assert message.msg.endswith("Connection refused.")


def project(folder: Path, *, extra: str = "", **apps: str) -> subprocess.CompletedProcess[str]:
    """`manage.py check` in a project whose apps have these `agents` modules."""
    for name, code in apps.items():
        (folder / name).mkdir()
        (folder / name / "__init__.py").touch()
        (folder / name / "agents.py").write_text("from turnkit_django import Agent, register\n" + code)
    (folder / "project_settings.py").write_text(
        f"from tests.settings import *\nINSTALLED_APPS += {list(apps)}\n{extra}"
    )
    paths = os.pathsep.join([str(folder), str(Path(__file__).parent.parent)])
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "project_settings", "PYTHONPATH": paths}
    command = [sys.executable, "-m", "django", "check"]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)


SUPPORT = 'register(Agent(name="support", instructions="{}"))\n'


def test_two_agents_of_one_name_are_an_error_that_names_both_modules(tmp_path: Path):
    checked = project(tmp_path, shop=SUPPORT.format("a"), forum=SUPPORT.format("b"))
    assert checked.returncode == 1
    message = (
        "(turnkit.E006) Expected one definition of agent `support`, got two: in `shop.agents` and in `forum.agents`"
    )
    assert message in checked.stderr
    assert "Traceback" not in checked.stderr


def test_two_agents_of_one_name_in_one_module_are_an_error_too(tmp_path: Path):
    checked = project(tmp_path, shop=SUPPORT.format("a") + SUPPORT.format("b"))
    assert "(turnkit.E006) Expected one definition of agent `support`, got two: both in `shop.agents`" in checked.stderr


def test_a_name_with_two_definitions_is_refused_where_it_is_used_and_others_are_not(tmp_path: Path):
    other = 'register(Agent(name="other"))\n'
    checked = project(tmp_path, shop=SUPPORT.format("a"), forum=SUPPORT.format("b"), club=other)
    assert checked.returncode == 1
    ask = (
        "import django; django.setup()\n"
        "from turnkit_django import errors, get_agent\n"
        "print(get_agent('other').name)\n"
        "try: get_agent('support')\n"
        "except errors.ConfigError as error: print(error)\n"
    )
    paths = os.pathsep.join([str(tmp_path), str(Path(__file__).parent.parent)])
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "project_settings", "PYTHONPATH": paths}
    asked = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, env=environment)
    assert asked.stdout.splitlines()[0] == "other"
    assert "expected one definition of agent `support`, got two" in asked.stdout


def test_a_view_that_imports_the_second_definition_does_not_hide_the_message(tmp_path: Path):
    (tmp_path / "project_urls.py").write_text("from forum.agents import support\nurlpatterns = []\n")
    second = "support = " + SUPPORT.format("b")
    checked = project(tmp_path, shop=SUPPORT.format("a"), forum=second, extra='ROOT_URLCONF = "project_urls"\n')
    assert "(turnkit.E006) Expected one definition of agent `support`" in checked.stderr
    assert "Traceback" not in checked.stderr


def test_an_agent_that_is_registered_twice_alike_is_fine(tmp_path: Path):
    checked = project(tmp_path, shop=SUPPORT.format("a"), forum=SUPPORT.format("a"))
    assert (checked.returncode, checked.stderr) == (0, "")
