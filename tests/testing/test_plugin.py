"""The pytest plugin, in a test suite of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = """
import pytest
from tests.testapp.agents import helper
from turnkit_django.engine import model_call
from turnkit_django.testing import assert_clean, call, text

@pytest.mark.django_db
def test_in_a_transaction(turnkit_model, turnkit_drain):
    model = turnkit_model([text("one"), text("two")])
    conversation = helper.conversation()
    assert conversation.ask("1").output_text == "one"
    turn = conversation.submit("2")
    assert turnkit_drain() == 1
    turn.refresh_from_db()
    assert turn.output_text == "two"
    assert_clean(model=model)

@pytest.mark.django_db(transaction=True)
def test_outside_of_one(turnkit_model, turnkit_drain):
    model = turnkit_model([call("unsafe"), text("done")], strict=False, cost=None)
    turn = helper.conversation().submit("please")
    assert turnkit_drain(max_seconds=5) == 1
    turn.refresh_from_db()
    assert (turn.status, turn.cost) == ("completed", None)
    assert_clean(model=model)

@pytest.mark.django_db
def test_the_last_script_answers(turnkit_model):
    turnkit_model([text("first")])
    turnkit_model([text("second")])
    assert helper.run("please").output_text == "second"

def test_nothing_of_it_stays():
    assert model_call._override is None
"""


def test_the_fixtures_work_with_and_without_a_transaction(tmp_path: Path):
    root = Path(__file__).parents[2]
    (tmp_path / "test_suite.py").write_text(SUITE)
    options = ["-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--create-db", "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--ds", "tests.settings", *options, str(tmp_path)]
    # A database of its own beside that of this suite.
    environment = {**os.environ, "PYTHONPATH": str(root), "TURNKIT_TEST_DATABASE": "plugin"}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=50)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "4 passed" in ran.stdout


@pytest.mark.parametrize("name", ["turnkit_model", "turnkit_drain"])
def test_the_plugin_is_installed_with_the_package(name: str, request: pytest.FixtureRequest):
    assert request.config.pluginmanager.hasplugin("turnkit")
    assert request.getfixturevalue(name)
