import re
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand

PAGE = (Path(__file__).parents[2] / "docs/commands.md").read_text()
NAMES = sorted(name for name, app in get_commands().items() if app == "turnkit_django")
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def options(command: BaseCommand, name: str) -> dict[str, str]:
    """Options and arguments as they are written, with their help."""
    usual = {action.dest for action in BaseCommand().create_parser("manage.py", name)._actions}
    own = [action for action in command.create_parser("manage.py", name)._actions if action.dest not in usual]
    return {
        " ".join(filter(None, [*action.option_strings[-1:], str(action.metavar or "")])): str(action.help)
        for action in own
    }


def test_every_command_has_a_heading():
    assert sorted(name for name in SECTIONS if name.startswith("turnkit_")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_commands_options_and_what_they_do_are_those_of_its_parser(name: str):
    command = load_command_class("turnkit_django", name)
    told = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", SECTIONS[name], re.MULTILINE))

    assert told == options(command, name)
    assert command.help in SECTIONS[name].replace("\n", " ")
