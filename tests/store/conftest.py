"""What tests of transitions share: a conversation, and a queue that notes its wake-ups."""

from typing import Any

import pytest

from tests.testapp.agents import helper
from turnkit_django.models import Conversation

wakes: list[str] = []


class Noting:
    """A queue that notes each wake-up."""

    def send_wake(self) -> None:
        wakes.append("wake")

    def is_stopping(self) -> bool:
        return False

    def note_reconcile(self) -> None: ...

    def last_reconcile(self) -> None: ...


@pytest.fixture
def queue(settings: Any) -> list[str]:
    settings.TURNKIT = {"DISPATCHER": f"{__name__}.Noting"}
    wakes.clear()
    return wakes


@pytest.fixture
def conversation() -> Conversation:
    return helper.conversation()
