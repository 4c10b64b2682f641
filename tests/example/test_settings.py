import os
import subprocess
import sys
from pathlib import Path

import pytest

from example_project.demo import servers
from turnkit_django.dispatch.base import get_dispatcher

ROOT = Path(__file__).resolve().parents[2]
PRODUCTION = {"DEBUG": "0", "SECRET_KEY": "0123456789" * 6 + "abcdefgh", "ALLOWED_HOSTS": "desk.example"}


def manage(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {key: value for key, value in os.environ.items() if key not in PRODUCTION}
    environment |= {"DJANGO_SETTINGS_MODULE": "example_project.settings", **variables}
    command = [sys.executable, "manage.py", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_check_passes() -> None:
    done = manage("check", "--fail-level", "WARNING")

    assert done.returncode == 0, done.stderr


def test_the_check_for_production_passes() -> None:
    get_dispatcher().note_reconcile()  # in production it runs
    done = manage("check", "--deploy", "--fail-level", "WARNING", **PRODUCTION)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"DATABASE_URL": ""}, "The environment variable DATABASE_URL is not set. Write postgresql://"),
        ({"DATABASE_URL": "secret-nonsense"}, "DATABASE_URL is not a database's address"),
        (PRODUCTION | {"SECRET_KEY": ""}, "The environment variable SECRET_KEY is not set."),
        (PRODUCTION | {"ALLOWED_HOSTS": " "}, "The environment variable ALLOWED_HOSTS is not set."),
        ({"DATABASE_URL": "sqlite:///there-is-none.db"}, "(turnkit.E001)"),
    ],
)
def test_what_is_missing_is_said(variables: dict[str, str], said: str) -> None:
    done = manage("check", **variables)

    assert done.returncode != 0
    assert said in done.stderr
    assert "secret-nonsense" not in done.stderr


@pytest.mark.parametrize(
    ("url", "changed"),
    [
        ("postgresql://postgres@%2Ftmp%2FSocket:5432/postgres", "postgresql://postgres@%2Ftmp%2FSocket:5432/new"),
        ("postgres://u:p@h/db?sslmode=require", "postgres://u:p@h/new?sslmode=require"),
        ("postgresql:///postgres", "postgresql:///new"),
    ],
)
def test_another_database_of_the_same_server(url: str, changed: str) -> None:
    assert servers._with_database(url, "new") == changed
