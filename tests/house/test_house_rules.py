"""The rules of the house that a machine can see."""

import ast
import re
from pathlib import Path

import pytest
from django.apps import apps
from django.db import connection
from django.db.models import DateTimeField, DurationField, ForeignKey

from tests.house.source import ROOT, called, modules, names
from turnkit_django.core import states
from turnkit_django.models.delivery import Outcome
from turnkit_django.models.message import Kind, Role

LONGEST_FUNCTION = 40
LONGEST_FILE = 400
TESTS = ROOT.parent / "tests"
EVERY_FILE = sorted(
    path
    for folder in [ROOT, TESTS, ROOT.parent / "example_project", ROOT.parent / "benchmarks"]
    for path in folder.rglob("*.py")
)
FILES = [path for path in EVERY_FILE if "migrations" not in path.parts]
VAGUE = {
    "common",
    "data",
    "helper",
    "helpers",
    "info",
    "manager",
    "managers",
    "misc",
    "service",
    "services",
    "util",
    "utils",
}
NAMED_BY_THE_DECISIONS = {"not_before"}
"""Times whose names decisions A3 gives."""
MODELS = list(apps.get_app_config("turnkit").get_models())


def short(path: Path) -> str:
    return path.relative_to(ROOT.parent).as_posix()


@pytest.mark.parametrize("path", FILES, ids=short)
def test_a_file_and_its_functions_are_short(path: Path):
    text = path.read_text()
    if ROOT in path.parents:
        assert len(text.splitlines()) <= LONGEST_FILE
    long = [
        f"{item.name} {length}"
        for item in ast.walk(ast.parse(text))
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
        if (length := (item.end_lineno or 0) - item.lineno + 1) > LONGEST_FUNCTION
    ]
    assert long == []


@pytest.mark.parametrize("path", FILES, ids=short)
def test_a_file_has_a_name_that_says_something(path: Path):
    assert path.stem not in VAGUE
    assert not VAGUE & set(path.relative_to(ROOT.parent).parts)


def test_settings_are_read_in_one_module():
    reading = {
        path
        for path, tree in modules().items()
        for item in ast.walk(tree)
        if (isinstance(item, ast.ImportFrom) and item.module == "django.conf")
        or (isinstance(item, ast.Import) and any(name.name.startswith("django.conf") for name in item.names))
    }

    # The checks look at INSTALLED_APPS and RQ, the scripted model whether there are settings at all.
    assert reading <= {"conf.py", "checks.py", "testing/clients.py"}
    for path in reading - {"conf.py"}:
        assert "TURNKIT" not in names(modules()[path])


def test_no_model_saves_in_its_own_way():
    overridden = [
        f"{path} {item.name}"
        for path, tree in modules().items()
        if path.startswith("models/")
        for item in ast.walk(tree)
        if isinstance(item, ast.FunctionDef) and item.name in {"save", "delete", "asave", "adelete", "full_clean"}
    ]

    assert overridden == []


def test_no_work_hangs_on_model_signals():
    signals = {"pre_save", "post_save", "pre_delete", "post_delete", "m2m_changed", "pre_init", "post_init"}

    assert [path for path, tree in modules().items() if signals & names(tree)] == []


def test_nothing_sleeps_in_the_store_or_the_engine():
    found = [path for path, tree in modules().items() for name, _ in called(tree) if name == "sleep"]

    assert {path for path in found if path.startswith(("store/", "engine/", "core/"))} == set()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_columns_name_says_what_it_holds(model: type):
    fields = model._meta.get_fields()
    times = [field.name for field in fields if isinstance(field, DateTimeField)]
    durations = [field.name for field in fields if isinstance(field, DurationField)]
    links = [field.attname for field in fields if isinstance(field, ForeignKey)]

    assert [name for name in times if not name.endswith("_at") and name not in NAMED_BY_THE_DECISIONS] == []
    assert durations in ([], ["timeout"])
    assert [name for name in links if not name.endswith("_id")] == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("constraint", "known"),
    [
        ("turnkit_turn_status_is_known", states.TurnState),
        ("turnkit_turn_phase_is_known", states.Phase),
        ("turnkit_execution_status_is_known", states.ToolState),
        ("turnkit_execution_approval_is_known", states.Approval),
        ("turnkit_message_role_is_known", Role),
        ("turnkit_message_kind_is_known", Kind),
        ("turnkit_delivery_outcome_is_known", Outcome),
    ],
)
def test_the_database_knows_the_same_states(constraint: str, known: type):
    assert {state.value for state in known} == texts_of(constraint)


@pytest.mark.django_db
def test_the_database_knows_the_same_final_states():
    ended = texts_of("turnkit_turn_ended_if_and_only_if_it_has_an_end")
    settled = texts_of("turnkit_execution_settled_if_and_only_if_it_has_an_end")

    assert {state.value for state in states.TERMINAL} == ended
    assert {state.value for state in states.SETTLED} == settled
    assert {"running"} == texts_of("turnkit_turn_runs_if_and_only_if_claimed")


def texts_of(constraint: str) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s", [constraint])
        (definition,) = cursor.fetchone()
    return set(re.findall(r"'([^']*)'::text", definition))
