"""The page of a turn: why it stands where it stands, who holds it, and all it did, in order and in pages."""

import itertools
import json
import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.admin.rows import conversation, execution, message, turn
from tests.testapp.agents import helper
from turnkit_django.engine import runner
from turnkit_django.models import Message, ToolExecution, Turn
from turnkit_django.store import transitions
from turnkit_django.testing import call, drain, text

pytestmark = pytest.mark.django_db


def page(browser: Client, owner: Turn, **asked: str) -> str:
    response = browser.get(f"/admin/turnkit/turn/{owner.pk}/change/", asked)
    assert response.status_code == 200
    return response.content.decode()


def words(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html)).replace("&quot;", '"').replace("&#x27;", "'")


def headings(html: str) -> list[str]:
    return [words(found).strip() for found in re.findall(r"<h3>(.*?)</h3>", html, re.S)]


@pytest.mark.django_db(transaction=True)
def test_failed_attempts_of_a_model_call_stand_with_the_answer_that_came(viewer: Client, turnkit_model):
    turnkit_model([{"error": {"status": 503}}, {"error": {"status": 429, "retry_after": 0}}, text("It is done.")])
    owner = helper.conversation().submit("Please.")
    drain()

    shown = words(page(viewer, owner))

    assert shown.count("failed before") == 2
    assert shown.index("503") < shown.index("429")
    (answer,) = owner.messages.filter(role="assistant")
    assert [each["type"] for each in answer.metadata["failed_attempts"]] == ["TransientModelError"] * 2


@pytest.mark.django_db(transaction=True)
def test_a_turn_that_is_erased_while_its_page_is_made_gives_a_page(viewer: Client, monkeypatch: pytest.MonkeyPatch):
    owner, explain = turn(conversation()), Turn.explain

    def erased(self: Turn) -> object:
        Turn.objects.filter(pk=self.pk).delete()
        return explain(self)

    monkeypatch.setattr(Turn, "explain", erased)
    response = viewer.get(f"/admin/turnkit/turn/{owner.pk}/change/", follow=True)
    assert response.status_code == 200
    assert f"There is no turn {owner.pk}" in response.text


@pytest.mark.django_db(transaction=True)
def test_a_turn_shows_what_was_said_and_done_in_order(viewer: Client, turnkit_model: Callable[[Any], Any]):
    turnkit_model([[call("safe", {"n": 3}), call("nosuch", {"n": 4})], text("It is done.")])
    owner = helper.conversation().submit("Do 3, please.")
    drain()

    html = page(viewer, owner)

    steps = headings(html[html.index("turnkit-steps") :])
    assert steps == [
        "1. User",
        "2. Model: tool call",
        "3. Tool call: safe completed",
        "4. Tool call: nosuch failed",
        "5. Model",
    ]
    shown = words(html)
    for said in ("Do 3, please.", '{ "n": 3 }', "Error: UnknownTool", "It is done.", "Asks for nosuch"):
        assert said in shown
    assert "is completed" in shown
    folded = re.findall(r"<details>\s*<summary>(.*?)</summary>", html, re.S)
    assert [words(each).split(" (")[0].strip() for each in folded] == [
        "Asks for safe", "Asks for nosuch", "Arguments", "Result", "Arguments",
    ]  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_a_running_turn_shows_who_holds_it_since_when_and_its_open_call(viewer: Client):
    owner = helper.conversation().submit("please")
    (one,) = transitions.claim(runner.holder())

    shown = words(page(viewer, owner))

    assert f"Held by {one.turn.claimed_by}, lease ends in " in shown
    assert f"Held since {one.turn.claimed_at:%Y-%m-%d %H:%M:%S} UTC" in shown
    assert "A model call is under way" in shown
    assert one.turn.attempt_id in shown


def test_the_explanation_of_the_turn_is_shown(viewer: Client):
    owner = turn(conversation())

    first, *_ = str(owner.explain()).splitlines()

    assert first in words(page(viewer, owner))


def test_a_step_shows_the_model_tokens_cost_and_time_of_its_call(viewer: Client):
    owner = turn(conversation())
    noted = {
        "model": "openai/gpt-5-mini", "usage": {"input_tokens": 1200, "output_tokens": 34, "cached_tokens": 0},
        "cost": "0.000123456789", "seconds": 1.25, "request_id": "r" * 32, "finish_reason": "length",
    }  # fmt: skip
    message(owner.conversation, 1, [], turn=owner, role="assistant", metadata=noted)
    message(owner.conversation, 2, [], turn=owner, role="assistant", metadata={"cost": None})
    message(owner.conversation, 3, [], turn=owner, role="user", metadata={"cost": "7"})

    shown = words(page(viewer, owner))

    facts = "model openai/gpt-5-mini · ended by length · input 1200 · output 34 · cost $0.000123456789 · took 1 s"
    assert facts in shown
    assert shown.count("· cost unknown") == 1
    assert "$7" not in shown


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (None, "unknown"),
        (Decimal(0), "$0"),
        (Decimal("0.000000000001"), "$0.000000000001"),
        (Decimal("123456789012.123456789012"), "$123456789012.123456789012"),
        (Decimal("100"), "$100"),
    ],
)
def test_money_keeps_its_digits_and_unknown_is_not_nothing(viewer: Client, cost: Decimal | None, expected: str):
    owner = turn(conversation(), cost=cost, unknown_attempts=2)

    html = page(viewer, owner)

    assert f"<td>{expected}</td>" in html
    assert "and 2 calls never heard of again" in html
    assert f'field-price">{expected}<' in viewer.get("/admin/turnkit/turn/").content.decode()
    totals = words(viewer.get(f"/admin/turnkit/conversation/{owner.conversation_id}/change/").content.decode())
    assert ("that of 1 of its turns is unknown" in totals) is (cost is None)


def test_an_error_is_shown_with_its_traceback_folded(viewer: Client):
    trace = "Traceback (most recent call last):\n  File x\nValueError: no"
    error = {"type": "ValueError", "message": "no such order", "details": {"traceback": trace}}
    owner = turn(conversation(), status="failed", error=error)
    execution(owner, 0, status="failed", error=error)

    html = page(viewer, owner)

    assert words(html).count("Error: ValueError no such order") == 2
    details = re.findall(r"<details><summary><bdi>Details of the error</bdi>.*?</details>", html, re.S)
    assert len(details) == 2
    assert all(trace in each for each in details)


def test_a_call_without_a_result_yet_is_the_last_step(viewer: Client):
    owner = turn(conversation())
    message(owner.conversation, 1, [{"type": "text", "text": "hi"}], turn=owner)
    started = timezone.now() - timedelta(seconds=90)
    execution(owner, 0, status="running", started_at=started, arguments_text='{"n": 1}')

    html = page(viewer, owner)

    assert headings(html)[-1] == "Tool call: safe running"
    assert "started 1 min ago" in words(html)


def crowd(owner: Turn, count: int) -> None:
    calls = [ToolExecution(turn=owner, tool_name="safe", call_key=f"{n:064}", ordinal=n) for n in range(count)]
    ToolExecution.objects.bulk_create(calls, batch_size=2000)
    Message.objects.bulk_create(
        (
            Message(
                conversation_id=owner.conversation_id, turn=owner, sequence=n + 1, role="tool",
                content=[{"type": "text", "text": f"step {n + 1}"}], tool_execution=each,
            )
            for n, each in enumerate(calls)
        ),
        batch_size=2000,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["turn", "conversation"])
@pytest.mark.timeout(180)
def test_ten_thousand_messages_and_calls_take_the_statements_of_a_few(viewer: Client, kind: str):
    few, many = turn(conversation()), turn(conversation())
    crowd(few, 3)
    crowd(many, 10_000)
    taken, sizes = [], []
    for owner in (few, many):
        key = owner.pk if kind == "turn" else owner.conversation_id
        with CaptureQueriesContext(connection) as captured:
            response = viewer.get(f"/admin/turnkit/{kind}/{key}/change/")
        taken.append(len(captured))
        sizes.append(len(response.content))

    # The session, the user, two for permissions, the row; then what the page is made of.
    assert taken[1] <= taken[0] <= 10
    assert sizes[1] < 150_000
    last = viewer.get(f"/admin/turnkit/{kind}/{key}/change/", {"p": "200"}).content.decode()
    assert headings(last)[-1].startswith("10000. ")
    assert len(headings(last)) == 50


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("1", 1, 50),
        ("2", 51, 100),
        ("3", 101, 120),
        ("999999", 101, 120),
        ("abc", 1, 50),
        ("-1", 101, 120),
        ("", 1, 50),
    ],
)
def test_any_number_of_a_page_leads_to_a_page(viewer: Client, asked: str, first: int, last: int):
    owner = turn(conversation())
    crowd(owner, 120)

    for url in (f"turn/{owner.pk}", f"conversation/{owner.conversation_id}"):
        html = viewer.get(f"/admin/turnkit/{url}/change/", {"p": asked, "t": asked}).content.decode()
        found = headings(html)
        assert (found[0].split(".")[0], found[-1].split(".")[0]) == (str(first), str(last))
        assert "120 in all" in html


def test_a_conversation_shows_its_turns_in_pages_and_its_totals(viewer: Client):
    lane = conversation(subject_type="helpdesk.customer", subject_id="7")
    for _ in range(60):
        turn(lane, input_tokens=10, cost=Decimal("0.1"), status="completed")

    first = viewer.get(f"/admin/turnkit/conversation/{lane.pk}/change/").content.decode()
    second = viewer.get(f"/admin/turnkit/conversation/{lane.pk}/change/", {"t": "2"}).content.decode()

    assert "Tokens 600 Cost $6" in words(first)
    assert "helpdesk.customer:7" in first
    pattern = r'<th scope="row"><a href="/admin/turnkit/turn/'
    assert (len(re.findall(pattern, first)), len(re.findall(pattern, second))) == (50, 10)


def test_times_are_told_in_the_projects_zone_with_their_age(viewer: Client, settings: Any):
    settings.TIME_ZONE = "Asia/Kolkata"
    owner = turn(conversation(), submitted_at=timezone.now() - timedelta(hours=3), lane_position=1)

    shown = words(page(viewer, owner))

    local = timezone.localtime(owner.submitted_at)
    assert f"Submitted {local:%Y-%m-%d %H:%M:%S} IST (3 h ago)" in shown


@pytest.mark.django_db(transaction=True)
def test_the_pages_read_the_timeline_through_an_index(viewer: Client):
    owner = turn(conversation())
    crowd(owner, 2)
    for _ in range(20):
        crowd(turn(conversation()), 200)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    with CaptureQueriesContext(connection) as captured:
        page(viewer, owner)

    for sql in (each["sql"] for each in captured.captured_queries if "turnkit_message" in each["sql"]):
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}")
            plan = json.dumps(cursor.fetchone())
        assert '"Seq Scan"' not in plan, sql


def test_headings_stand_in_order_and_tables_have_scopes(operator: Client):
    owner = turn(conversation(), error={"type": "X", "message": "y", "details": {}})
    crowd(owner, 2)
    for url in (
        f"turn/{owner.pk}/change/",
        f"conversation/{owner.conversation_id}/change/",
        f"turn/cancel/?turns={owner.pk}",
    ):
        html = operator.get(f"/admin/turnkit/{url}").content.decode()
        main = html[html.index('id="content-start"') :]
        levels = [int(level) for level in re.findall(r"<h(\d)", main)]
        assert levels[0] == 1
        assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))
        assert "<th>" not in main
        assert "onclick" not in main
        assert "<script" not in main
