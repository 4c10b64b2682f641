"""Whatever stands in a row, its pages are pages: small, with nothing in them that runs, leads away or hides."""

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from django.db import models
from django.test import Client

from tests.admin.rows import KINDS, blank, conversation, execution, family, fill, message, turn
from turnkit_django.models import Message, ToolExecution, Turn

pytestmark = pytest.mark.django_db

SMALL = 400_000
HOSTILE = "\"'><script>evil()</script><a href='javascript:evil()'>x</a><img src=x onerror=evil()>\u202egnol\u2066\ufeff"
MEGABYTES = "x<" * 2_500_000
VALUES: dict[str, Any] = {
    "markup": HOSTILE,
    "markup in lists and keys": [{HOSTILE: HOSTILE}, HOSTILE, None, 1, [HOSTILE]],
    "five megabytes": MEGABYTES,
    "long number": [{"type": "text", "text": 10**300}, 10**300],
    "many parts": [{}] * 6000,
    "parts of unknown types": [{"type": HOSTILE}, {"type": None}, {"type": "text"}, {"type": "tool_call", "name": 1}],
    "empty object": {},
    "empty list": [],
    "empty text": "",
    "null": None,
    "odd metadata": {"usage": "x", "cost": {}, "seconds": "long", "model": [HOSTILE], "request_id": 7},
    "odd numbers": {"usage": {HOSTILE: HOSTILE}, "cost": "1e999999", "seconds": -1, "finish_reason": HOSTILE},
    "odd error": {"type": [HOSTILE], "message": {"x": HOSTILE}, "details": HOSTILE},
}
UNREADABLE = ["[" * 3000 + "]" * 3000, f"[{'9' * 6000}]"]
"""JSON that Python does not read. Only SQL of the application's own could put it into a row, and none into an error."""
TEXTS = {name: json.dumps(value, ensure_ascii=False) for name, value in VALUES.items()} | {
    "nested deep": "[" * 300 + "]" * 300,
    "nested deeper than Python reads": UNREADABLE[0],
    "more digits than Python reads": UNREADABLE[1],
}


class _Tags(HTMLParser):
    """What a browser makes of a page: its elements, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def require_harmless(page: str) -> None:
    seen = _Tags(page)
    scripts = [attributes.get("src") for tag, attributes in seen.tags if tag == "script"]
    links = [attributes.get("href") or "" for _, attributes in seen.tags if "href" in attributes]
    handlers = [name for _, attributes in seen.tags for name in attributes if name.startswith("on")]
    assert all(source and source.startswith(("/static/admin/", "/admin/jsi18n/")) for source in scripts)
    assert [link for link in links if not link.startswith(("/", "#", "?"))] == []
    assert handlers == []
    assert re.findall("[\u202a-\u202e\u2066-\u2069\ufeff\u200b]", page) == []


def pages_of(kind: str, row: models.Model) -> list[str]:
    return [
        f"/admin/turnkit/{kind}/",
        f"/admin/turnkit/{kind}/{row.pk}/change/",
        f"/admin/turnkit/{kind}/{row.pk}/history/",
    ]


@pytest.mark.parametrize("text", [*TEXTS.values(), None], ids=[*TEXTS, "nothing at all"])
def test_every_page_shows_any_value_harmless_and_stays_small(operator: Client, text: str | None):
    rows = family()
    for kind, row in rows.items():
        if text is None:
            blank(row)
        else:
            fill(row, text, spared={"error"} if kind == "turn" and text in UNREADABLE else set())

    for kind, row in rows.items():
        for url in pages_of(kind, row):
            response = operator.get(url)

            page = response.content.decode()
            assert (response.status_code, url) == (200, url)
            assert len(page) < SMALL, url
            require_harmless(page)


def test_a_message_of_five_megabytes_is_shown_from_its_beginning(viewer: Client):
    owner = turn(conversation())
    long = message(owner.conversation, 1, [{"type": "text", "text": MEGABYTES}], turn=owner, role="assistant")

    page = viewer.get(f"/admin/turnkit/turn/{owner.pk}/change/").content.decode()

    assert len(page) < SMALL
    assert re.search(r"cut: 2,000 of 5,000,0\d\d characters", page)
    assert f'href="/admin/turnkit/message/{long.pk}/value/content/"' in page


def test_hostile_text_is_shown_in_the_words_it_was_written_in(operator: Client):
    lane = conversation()
    owner = turn(lane, status="failed", error={"type": "X", "message": HOSTILE, "details": {"traceback": HOSTILE}})
    message(lane, 1, [{"type": "text", "text": HOSTILE}], turn=owner)
    call = execution(owner, 0, tool_name=HOSTILE, arguments_text=HOSTILE, status="completed", result={"said": HOSTILE})
    message(lane, 2, [], turn=owner, role="tool", tool_execution=call)

    page = operator.get(f"/admin/turnkit/turn/{owner.pk}/change/").content.decode()

    words = _Tags(page).text
    assert words.count("<script>evil()</script>") >= 5
    assert "[U+202E]gnol[U+2066][U+FEFF]" in words
    require_harmless(page)


@pytest.mark.parametrize("kind", ["confirmation", "history", "message"])
def test_the_pages_around_cancelling_are_harmless(operator: Client, kind: str):
    owner = turn(conversation(agent_name=HOSTILE), agent_name=HOSTILE, model=HOSTILE)
    url = "/admin/turnkit/turn/cancel/"
    if kind == "confirmation":
        page = operator.get(url, {"turns": f"{owner.pk},{HOSTILE}"})
    else:
        page = operator.post(url, {"turns": owner.pk}, follow=True)
    if kind == "history":
        page = operator.get(f"/admin/turnkit/turn/{owner.pk}/history/")

    require_harmless(page.content.decode())


@pytest.mark.parametrize("kind", KINDS)
def test_an_id_that_does_not_exist_leads_back_to_the_list(operator: Client, kind: str):
    for key in (HOSTILE.replace("/", ""), "%00", "x" * 5000, "_5F"):
        response = operator.get(f"/admin/turnkit/{kind}/{key}/change/", follow=True)

        assert response.status_code == 200
        assert response.redirect_chain[0][0] == f"/admin/turnkit/{kind}/"
        require_harmless(response.content.decode())


def test_a_long_value_is_cut_and_says_so_and_is_had_whole_as_a_file(viewer: Client):
    owner = turn(conversation(), output_text="é" * 3_000_000)

    page = viewer.get(f"/admin/turnkit/turn/{owner.pk}/change/").content.decode()
    file = viewer.get(f"/admin/turnkit/turn/{owner.pk}/value/output_text/")

    assert "cut: 2,000 of 3,000,000 characters" in page
    assert f'href="/admin/turnkit/turn/{owner.pk}/value/output_text/"' in page
    assert file.content.decode() == "é" * 3_000_000
    assert file["Content-Type"] == "text/plain; charset=utf-8"
    assert file["Content-Disposition"] == f'attachment; filename="{owner.pk}-output_text.txt"'
    assert file["X-Content-Type-Options"] == "nosniff"
    assert file["Content-Security-Policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize("column", ["status", "id", "claim_token", "conversation", "nosuch", "context\0"])
def test_only_long_columns_are_files(viewer: Client, column: str):
    owner = turn(conversation())

    assert viewer.get(f"/admin/turnkit/turn/{owner.pk}/value/{column}/").status_code == 404
    assert viewer.get(f"/admin/turnkit/turn/x{column}/value/context/").status_code == 404


def test_json_is_indented_without_touching_what_is_only_similar(viewer: Client):
    owner = turn(conversation(), context={"a": [1, "é"]}, output_text="[not json")

    page = viewer.get(f"/admin/turnkit/turn/{owner.pk}/change/").content.decode()

    assert '{\n  "a": [\n    1,\n    "é"\n  ]\n}' in _Tags(page).text
    assert "[not json" in page


def test_a_page_of_fifty_large_steps_is_small(viewer: Client):
    lane = conversation()
    owner = turn(lane)
    calls = [
        ToolExecution(turn=owner, tool_name="t" * 50_000, call_key=f"{n:064}", ordinal=n, arguments_text="a" * 50_000,
                      result={"r": "r" * 50_000}, error={"type": "E", "message": "m" * 50_000,
                                                         "details": {"traceback": "d" * 50_000}})
        for n in range(25)
    ]  # fmt: skip
    ToolExecution.objects.bulk_create(calls)
    said = [{"type": "text", "text": "x" * 50_000}]
    Message.objects.bulk_create(
        Message(conversation=lane, turn=owner, sequence=n + 1, role="user", content=said) for n in range(25)
    )
    Message.objects.bulk_create(
        Message(conversation=lane, turn=owner, sequence=n + 26, role="tool", content=[], tool_execution=call)
        for n, call in enumerate(calls)
    )

    page = viewer.get(f"/admin/turnkit/turn/{owner.pk}/change/").content

    assert len(page) < 2 * SMALL
    assert page.count(b"cut: 2,000 of") >= 25 * 4
    assert Turn.objects.count() == 1
