from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from turnkit_django.core.content import is_storable, shown
from turnkit_django.engine.explain import explain
from turnkit_django.models import Conversation, Turn
from turnkit_django.store import situations


class Command(BaseCommand):
    help = "Say why a turn stands where it stands, and what would move it. Changes nothing."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("turn", metavar="TURN", help="the id of a turn: turn_…")
        parser.add_argument("--json", action="store_true", help="print JSON, as `turn.explain().as_dict()` gives it")

    def handle(self, *args: Any, **options: Any) -> None:
        turn_id = options["turn"]
        if not turn_id.startswith("turn_") or not is_storable(turn_id):
            raise CommandError(f"expected the id of a turn (`turn_…`), {_got(turn_id)}")
        try:
            explanation = explain(turn_id)
        except Turn.DoesNotExist as missing:
            raise CommandError(f"expected the id of a stored turn (`turn_…`): {missing}") from missing
        self.stdout.write(json.dumps(explanation.as_dict(), indent=2) if options["json"] else str(explanation))


def _got(other_id: str) -> str:
    """What was given instead; of a conversation, the turns that may have been meant."""
    if not other_id.startswith("conv_") or not is_storable(other_id):
        return f"got {shown(other_id)}"
    try:
        found = situations.in_question(other_id)
    except Conversation.DoesNotExist as missing:
        return f"and {missing}"
    turns = ", ".join(f"{turn_id} ({status})" for turn_id, status in found)
    advice = f"ask for one of its turns: {turns}" if turns else "it has no turns"
    return f"got the conversation {shown(other_id)}: {advice}"
