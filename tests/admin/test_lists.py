"""Lists of long tables: few statements, no long values, an index for each search, and a page for every address."""

import json
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.admin.rows import KINDS, MODELS, conversation, execution, family, turn
from turnkit_django.admin import finding, pages
from turnkit_django.admin.base import RowAdmin
from turnkit_django.core.ids import earliest_id, id_range
from turnkit_django.models import Conversation, Delivery, Message, ToolExecution, Turn, Wait

pytestmark = pytest.mark.django_db

ROWS = 10_000


def listed(browser: Client, kind: str, **asked: str) -> list[str]:
    """The ids on the list."""
    response = browser.get(f"/admin/turnkit/{kind}/", asked)
    assert response.status_code == 200
    return [row.pk for row in response.context["cl"].result_list]


def fresh(count: int) -> dict[str, list[Any]]:
    """So many rows of each kind, in a few lanes."""
    now = timezone.now()
    lanes = [Conversation(agent_name="helper") for _ in range(count)]
    needed = {"agent_name": "helper", "model": "x", "max_iterations": 1, "max_output_tokens": 1}
    turns = [
        Turn(conversation=lane, status="completed", completed_at=now, lane_position=1, output_text="x" * 100, **needed)
        for lane in lanes
    ]
    calls = [ToolExecution(turn=one, tool_name="safe", call_key="k", ordinal=0) for one in turns]
    said = [Message(conversation=one.conversation, turn=one, sequence=1, role="user", content=[]) for one in turns]
    sent = [Delivery(source=lane, destination=lane, key="k", text="x") for lane in lanes]
    edges = [Wait(turn=one, target=other) for one, other in zip(turns, turns[1:] + turns[:1], strict=True)]
    made = dict(zip(KINDS, [lanes, turns, said, calls, sent, edges], strict=True))
    for model, rows in zip(MODELS, made.values(), strict=True):
        model._default_manager.bulk_create(rows)
    return made


def statements(browser: Client, path: str, **asked: str) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        assert browser.get(path, asked).status_code == 200
    return [query["sql"] for query in captured.captured_queries]


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_takes_the_same_few_statements_whatever_it_holds(operator: Client, kind: str):
    fresh(2)
    few = statements(operator, f"/admin/turnkit/{kind}/")
    fresh(150)
    many = statements(operator, f"/admin/turnkit/{kind}/")

    # The session, the user, two for permissions; the count and the rows.
    assert len(few) == len(many) == 6


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_reads_no_long_value(operator: Client, kind: str):
    from django.contrib import admin

    model = MODELS[KINDS.index(kind)]
    family()
    registered = admin.site.get_model_admin(model)
    assert isinstance(registered, RowAdmin)

    rows = statements(operator, f"/admin/turnkit/{kind}/")[-1]

    for name in registered.big:
        column = f'"{model._meta.db_table}"."{name}"'
        assert column not in rows.replace(f"LEFT({column}, 100)", "")


@pytest.mark.parametrize("kind", KINDS)
def test_the_newest_row_stands_first(operator: Client, kind: str):
    made = fresh(3)[kind]

    assert listed(operator, kind) == sorted((row.pk for row in made), reverse=True)


@pytest.fixture
def much(transactional_db: None) -> dict[str, list[Any]]:
    made = fresh(ROWS)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return made


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(180)
def test_searches_and_the_first_page_use_an_index(
    much: dict[str, list[Any]], operator: Client, monkeypatch: pytest.MonkeyPatch
):
    # All rows were made just now; seen from tomorrow, the past hour holds none of them.
    tomorrow = timezone.now() + timedelta(days=1)
    monkeypatch.setattr(finding, "timezone", SimpleNamespace(now=lambda: tomorrow))
    found = []
    for kind, rows in much.items():
        row = rows[ROWS // 2]
        ids = {value for value in vars(row).values() if isinstance(value, str) and value[-27:-26] == "_"}
        for asked in [*({"q": key} for key in ids), {"q": row.pk[:20]}, {"age": "1"}, {}]:
            for sql in statements(operator, f"/admin/turnkit/{kind}/", **asked)[4:]:
                found += [f"{kind} {asked}: {node}" for node in scans(sql)]

    assert found == []


def scans(sql: str) -> Iterator[str]:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}")
        (plan,) = cursor.fetchone()
    left = [(json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]]
    while left:
        node = left.pop()
        left += node.get("Plans", [])
        if node["Node Type"] == "Seq Scan":
            # A count of the newest rows stops after so many of them.
            if not node.get("Filter") and "LIMIT" in sql:
                continue
            yield f"{node['Relation Name']} {node.get('Filter')}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_found_by_its_id_or_the_beginning_of_it(operator: Client, kind: str):
    row = fresh(2)[kind][0]

    for term in (row.pk, f"  {row.pk}\t", row.pk.lower(), row.pk.upper(), row.pk[:-1]):
        assert listed(operator, kind, q=term) == [row.pk], term
    assert len(listed(operator, kind, q=row.pk.partition("_")[0] + "_")) == 2


def test_rows_are_found_by_the_ids_of_what_they_belong_to(operator: Client):
    rows = family()
    fresh(3)
    lane, first, call = (rows[kind].pk for kind in ("conversation", "turn", "toolexecution"))

    assert len(listed(operator, "turn", q=lane)) == 2
    assert len(listed(operator, "message", q=lane)) == 3
    assert len(listed(operator, "message", q=first)) == 3
    assert len(listed(operator, "message", q=call)) == 1
    assert listed(operator, "toolexecution", q=first) == [call]
    assert listed(operator, "toolexecution", q=lane) == [call]
    assert listed(operator, "delivery", q=lane) == [rows["delivery"].pk]
    assert listed(operator, "wait", q=first) == [rows["wait"].pk]


def test_conversations_and_turns_are_found_by_their_subject(operator: Client):
    lane = conversation(subject_type="helpdesk.customer", subject_id="7")
    owner = turn(lane)
    turn(conversation(subject_type="helpdesk.customer", subject_id="77"))

    assert listed(operator, "conversation", q="helpdesk.Customer:7") == [lane.pk]
    assert listed(operator, "turn", q="helpdesk.customer:7") == [owner.pk]


ODD = [
    "%",
    "'",
    '"; DROP TABLE turnkit_turn',
    "_",
    "turn_%",
    "turn_" + "0" * 5000,
    "x" * 100_000,
    "\\",
    "turn_'",
    "\u202e",
]


@pytest.mark.parametrize("kind", KINDS)
def test_an_odd_search_finds_nothing_and_stays_a_page(operator: Client, kind: str):
    fresh(2)
    for term in ODD:
        assert listed(operator, kind, q=term) == [], term[:50]
    assert len(listed(operator, kind, q="   ")) == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "query",
    ["q=%00", "status=%00", "age=%00", "p=%00", "age=nosuch", "age=", "p=999999", "p=-1", "p=0", "p=abc", "all=1",
     "p=9&all=", "o=1.-2", "o=x", "e=1", "_facets=True", "_popup=1"],
)  # fmt: skip
def test_an_odd_address_is_answered_by_a_page(operator: Client, kind: str, query: str):
    fresh(2)

    assert operator.get(f"/admin/turnkit/{kind}/?{query}", follow=True).status_code == 200


@pytest.mark.parametrize(
    "lookup", ["agent_name__icontains", "error__regex", "id__startswith", "conversation__id", "nosuch"]
)
def test_only_the_filters_filter(operator: Client, lookup: str):
    turn(conversation())

    assert operator.get("/admin/turnkit/turn/", {lookup: "("}).status_code == 400


def test_turns_are_filtered_by_status_agent_and_age(operator: Client):
    lane = conversation()
    old = turn(lane, id=earliest_id("turn", timezone.now() - timedelta(days=3))[:-4] + "0000")
    failed, other = turn(lane, status="failed"), turn(lane, agent_name="nobody")

    assert listed(operator, "turn", status="failed") == [failed.pk]
    assert listed(operator, "turn", agent="helper") == [failed.pk, old.pk]
    assert listed(operator, "turn", age="24") == [other.pk, failed.pk]
    assert listed(operator, "turn", age="168", agent="helper", status="pending") == [old.pk]


def test_the_others_are_filtered_by_what_is_known_of_them(operator: Client):
    rows = family()
    calls = [execution(rows["turn"], 1, tool_name="unsafe"), execution(rows["turn"], 2, tool_name="nobody's")]

    assert listed(operator, "toolexecution", tool="unsafe") == [calls[0].pk]
    assert listed(operator, "toolexecution", status="completed") == [rows["toolexecution"].pk]
    assert len(listed(operator, "message", role="tool")) == 1
    assert listed(operator, "delivery", delivered="no") == [rows["delivery"].pk]
    assert listed(operator, "delivery", delivered="yes") == []
    assert listed(operator, "wait", target="ended") == [rows["wait"].pk]
    assert listed(operator, "wait", target="open") == []


def test_filters_ask_the_table_for_no_values(operator: Client):
    fresh(2)

    assert not [sql for sql in statements(operator, "/admin/turnkit/turn/") if "DISTINCT" in sql]


def test_a_list_counts_and_pages_through_the_newest_only(operator: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pages, "LISTED", 150)
    newest = sorted((row.pk for row in fresh(200)["turn"]), reverse=True)

    page = operator.get("/admin/turnkit/turn/")

    assert page.context["cl"].result_count == 150
    assert b"Only the newest 150 are counted and listed" in page.content
    assert listed(operator, "turn", p="2") == newest[100:150]
    (count,) = [sql for sql in statements(operator, "/admin/turnkit/turn/") if "COUNT" in sql]
    assert "LIMIT 151" in count
    assert b"Only the newest" not in operator.get("/admin/turnkit/turn/", {"q": newest[0]}).content


def test_the_range_of_a_beginning_holds_its_ids_and_no_other():
    low, high = id_range("turn_01M8")

    assert (low, high) == ("turn_01M80000000000000000000000", "turn_01M8ZZZZZZZZZZZZZZZZZZZZZZ")
    assert len(low) == len(high) == len(Turn._meta.pk.get_default())
    assert id_range(low) == (low, low)


def test_an_id_is_not_smaller_than_the_earliest_of_its_time():
    before = timezone.now() - timedelta(milliseconds=2)
    made = Turn._meta.pk.get_default()

    assert earliest_id("turn", before) < made < earliest_id("turn", timezone.now() + timedelta(milliseconds=2))
