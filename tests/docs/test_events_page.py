import json

import pytest

from tests.docs.event_tables import PAGE, filled, meanings, tables
from tests.docs.test_python_blocks import blocks
from tests.testapp.agents import helper
from turnkit_django.core.events import CATALOGUE
from turnkit_django.testing import text


def test_the_tables_of_events_are_made_from_the_code():
    page = PAGE.read_text()

    assert all(table in page for table in tables().values())
    assert filled(page) == page, "run `python -m tests.docs.event_tables`"


def test_every_event_has_a_row_and_every_field_a_meaning():
    page = PAGE.read_text()

    assert [name for name in CATALOGUE if f"\n| `{name}` | " not in page] == []
    assert all(meanings(kind) for kind in CATALOGUE.values())


@pytest.mark.django_db(transaction=True)
def test_the_writer_of_the_page_writes_each_event_as_a_line(turnkit_model, monkeypatch, tmp_path):
    turnkit_model([text("It is on its way.")])
    monkeypatch.setenv("EVENT_LOG", str(tmp_path / "events.jsonl"))
    namespace: dict[str, object] = {}
    code = "\n".join(block for language, block in blocks(PAGE) if language == "python")
    exec(compile(code.replace("@receiver(turn_changed)\n", ""), str(PAGE), "exec"), namespace)

    helper.conversation().ask("Where is my parcel?", on_event=namespace["write_line"])

    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [line["type"] for line in lines][-2:] == ["message.created", "turn.completed"]
