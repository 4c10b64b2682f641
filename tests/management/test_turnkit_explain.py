"""`manage.py turnkit_explain`."""

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from tests.testapp.agents import helper
from turnkit_django.core.ids import new_turn_id
from turnkit_django.models import Turn

pytestmark = pytest.mark.django_db


def explain(*arguments: str) -> str:
    out = StringIO()
    call_command("turnkit_explain", *arguments, stdout=out)
    return out.getvalue()


def refused(*arguments: str) -> str:
    with pytest.raises(CommandError) as error:
        explain(*arguments)
    return str(error.value)


def test_it_says_what_the_turn_says():
    turn = helper.conversation().submit("please")

    said = explain(turn.pk)

    assert said.startswith(f"{turn.pk} is pending: wake_up_sent\n")
    assert "or run `turnkit_reconcile --run`" in " ".join(said.split())


def test_json_is_what_the_turn_gives():
    turn = helper.conversation().submit("please")

    assert json.loads(explain(turn.pk, "--json")) == turn.explain().as_dict()


def test_json_cannot_speak_to_the_terminal():
    turn = helper.conversation().submit("please")
    Turn.objects.filter(pk=turn.pk).update(error={"type": "X", "message": "\x1b[2J\u202e"})

    said = explain(turn.pk, "--json")

    assert said.isascii()
    assert "\x1b" not in said
    assert json.loads(said)["last_error"]["message"] == "\x1b[2J\u202e"


def test_an_unknown_turn_is_named_with_what_was_expected():
    turn_id = new_turn_id()

    said = refused(turn_id)

    assert said.startswith("expected the id of a stored turn (`turn_…`): there is no turn")
    assert repr(turn_id) in said


@pytest.mark.parametrize("other", ["tool_06ABC", "", "17", "\x1b[2J", "turn_\x00", "turn_\udcff", "conv_\x00"])
def test_what_is_no_turns_id_is_refused_by_name(other: str):
    said = refused(other)

    assert said == f"expected the id of a turn (`turn_…`), got {other!r}"


def test_of_a_conversation_the_unfinished_turns_are_named():
    conversation = helper.conversation()
    conversation.submit("ended").cancel()
    first, second = conversation.submit("one"), conversation.submit("two")
    preview = conversation.prepare("three")

    said = refused(conversation.pk)

    turns = f"{first.pk} (pending), {second.pk} (pending), {preview.pk} (pending)"
    assert said == (
        f"expected the id of a turn (`turn_…`), got the conversation '{conversation.pk}': ask for one of its turns: "
        f"{turns}"
    )


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_of_a_conversation_where_all_has_ended_the_last_turn_is_named(options: tuple[str, ...]):
    conversation = helper.conversation()
    conversation.submit("one").cancel()
    last = conversation.submit("two").cancel()

    assert refused(conversation.pk, *options).endswith(f"ask for one of its turns: {last.pk} (cancelled)")


def test_of_a_conversation_without_turns_that_is_said():
    conversation = helper.conversation()

    assert refused(conversation.pk).endswith(f"got the conversation '{conversation.pk}': it has no turns")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_of_a_conversation_that_does_not_exist_that_is_said(options: tuple[str, ...]):
    said = refused("conv_unknown", *options)

    assert said == "expected the id of a turn (`turn_…`), and there is no conversation 'conv_unknown'"


@pytest.mark.django_db(transaction=True)
def test_from_a_shell_it_answers_in_json_and_exits_with_1_for_an_unknown_turn():
    turn = helper.conversation().submit("please")
    manage = [sys.executable, "-m", "django", "turnkit_explain", "--settings", "tests.settings"]
    root = Path(__file__).parents[2]

    known = subprocess.run([*manage, turn.pk, "--json"], capture_output=True, text=True, check=True, cwd=root)
    unknown = subprocess.run([*manage, new_turn_id()], capture_output=True, text=True, check=False, cwd=root)

    assert json.loads(known.stdout)["turn"] == turn.pk
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "expected the id of a stored turn" in unknown.stderr
