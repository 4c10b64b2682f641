"""How PostgreSQL carries the store's statements out: in which order it locks, and past how many finished turns."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.concurrency.threads import alone, observer
from tests.testapp.agents import helper
from turnkit_django.core.states import Phase, ToolState
from turnkit_django.core.usage import Usage
from turnkit_django.engine import runner
from turnkit_django.models import Conversation, Delivery, Message, Turn, Wait
from turnkit_django.store import inboxes, reads, situations, transitions
from turnkit_django.store.claims import Claim
from turnkit_django.store.locks import Locks
from turnkit_django.store.moves import STATEMENTS
from turnkit_django.store.records import Next, Reply, Settlement
from turnkit_django.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)

Node = dict[str, Any]
FINISHED, LANES, IDLE_CONVERSATIONS = 5000, 50, 2000


def plan(sql: str, values: Any = None, *, is_run: bool = False) -> Node:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON, ANALYZE {is_run}) {sql}", values)
        (found,) = cursor.fetchone()
    whole: Node = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    return whole


def nodes(node: Node) -> Iterator[Node]:
    yield node
    for inner in node.get("Plans", ()):
        yield from nodes(inner)


def claimed() -> Claim:
    helper.conversation().submit("please")
    (one,) = transitions.claim(runner.holder())
    return one.claim


MODEL = Next(Phase.MODEL)
SETTLEMENT = Settlement("tool_x", ToolState.COMPLETED.value, "ok")
HOT: dict[str, Callable[[Any], dict[str, Any]]] = {
    "store_reply": lambda make: make(
        Reply([{"type": "text", "text": "hi"}], "x", Usage(), None, {}),
        calls=[],
        then=Next(Phase.MODEL),
        lease_seconds=60,
    ),
    "settle_tool": lambda make: make(SETTLEMENT, call_id="", call_key="k", then=MODEL, lease_seconds=60),
    "start_tool": lambda make: make("tool_x", arguments={}, lease_seconds=60),
}


def hot_plan(name: str, claim: Claim) -> Node:
    parameters = HOT[name](getattr(transitions, name).__wrapped__)
    return plan(STATEMENTS[name], asdict(claim) | parameters)


def test_every_statement_has_its_parameters_here():
    assert set(HOT) == set(STATEMENTS)


@pytest.mark.parametrize("name", ["store_reply", "settle_tool"])
def test_a_hot_statement_locks_the_lane_before_it_updates_the_turn(name: str):
    whole = hot_plan(name, claimed())

    (lane,) = [node for node in nodes(whole) if node.get("Subplan Name") == "CTE lane"]
    (fence,) = [node for node in nodes(whole) if node.get("Subplan Name") == "CTE fence"]
    assert lane["Node Type"] == "LockRows"
    assert {node.get("Relation Name") for node in nodes(lane)} == {None, "turnkit_conversation"}
    assert (fence["Node Type"], fence["Operation"], fence["Relation Name"]) == ("ModifyTable", "Update", "turnkit_turn")
    assert "lane" in {node.get("CTE Name") for node in nodes(fence)}


@pytest.mark.parametrize("name", ["store_reply", "settle_tool"])
def test_only_those_who_hold_the_fence_number_a_message(name: str):
    whole = hot_plan(name, claimed())

    (number,) = [node for node in nodes(whole) if node.get("Subplan Name") == "CTE seq"]
    (message,) = [node for node in nodes(whole) if node.get("Subplan Name") == "CTE message"]
    assert "fence" in {node.get("CTE Name") for node in nodes(number)}
    assert "seq" in {node.get("CTE Name") for node in nodes(message)}


def read_by(turns: list[Turn]) -> None:
    """A message that each turn has read, and a wait of each for the next."""
    messages = Message.objects.bulk_create(
        Message(conversation_id=turn.conversation_id, turn=turn, sequence=turn.lane_position, role="user", kind="text")
        for turn in turns
    )
    Delivery.objects.bulk_create(
        Delivery(
            destination_id=message.conversation_id,
            message=message,
            key=message.pk,
            text="hello",
            delivered_at=timezone.now(),
            request_id="sent",
            receiving_turn_id=message.turn_id,
        )
        for message in messages
    )
    Wait.objects.bulk_create(Wait(turn=turn, target=target) for turn, target in pairwise(turns))


@pytest.fixture
def much_history(transactional_db: None) -> list[Conversation]:
    """Much that is finished or read, a few rows that are due, and two thousand conversations where nothing happens."""
    lanes = [helper.conversation() for _ in range(LANES)]
    idle = (Conversation(agent_name="helper") for _ in range(IDLE_CONVERSATIONS))
    Conversation.objects.bulk_create(idle)
    now = timezone.now()
    ended = Turn.objects.bulk_create(
        Turn(
            conversation=lanes[number % LANES],
            agent_name="helper",
            model="x",
            max_iterations=1,
            max_output_tokens=1,
            status="completed",
            lane_position=number // LANES + 1,
            submitted_at=now,
            started_at=now,
            completed_at=now,
        )
        for number in range(FINISHED)
    )
    Conversation.objects.filter(pk__in=[lane.pk for lane in lanes]).update(
        next_lane_position=FINISHED, next_sequence=FINISHED
    )
    read_by(ended)
    for lane in lanes[:5]:
        lane.submit("please")
    for lane in lanes[5:10]:
        transitions.deliver(lane.post("unread", key="unread").pk, draft=None)
        lane.post("pending", key="pending")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE turnkit_turn, turnkit_conversation, turnkit_delivery, turnkit_wait")
    return lanes


SCANS: dict[str, Callable[[list[Conversation]], object]] = {
    "has_due": lambda lanes: reads.has_due(),
    "expired": lambda lanes: reads.expired(limit=10),
    "claimed_by": lambda lanes: reads.claimed_by("host:1"),
    "ready": lambda lanes: reads.ready(limit=10),
    "miscounted": lambda lanes: reads.miscounted(limit=10),
    "overdue": lambda lanes: reads.overdue(limit=10),
    "unwoken_ids": lambda lanes: reads.unwoken_ids(limit=10),
    "pending": lambda lanes: inboxes.pending(limit=10),
    "unanswered": lambda lanes: inboxes.unanswered(lanes[5].pk),
    "seconds_to_next_message": lambda lanes: inboxes.seconds_to_next(),
    "lanes_to_continue": lambda lanes: inboxes.lanes_to_continue(limit=10),
    "has_work": lambda lanes: inboxes.has_work(),
    "seconds_to_next": lambda lanes: reads.seconds_to_next(),
    "situation": lambda lanes: situations.situation(Turn.objects.due().values_list("pk", flat=True)[0]),
    "require_idle": lambda lanes: reads.require_idle(lanes[-1].pk),
    "free_lanes": lambda lanes: Locks().free_lanes(limit=5),
    "heads_of_lanes": lambda lanes: Locks().turns(Turn.objects.heads().filter(conversation__in=lanes[:5])),
    "wake_due": lambda lanes: transitions.wake_due(limit=10),
    "cancel": lambda lanes: transitions.cancel(Turn.objects.due().values_list("pk", flat=True)[0]),
}
OF_WHAT_IS_OPEN = {
    "turnkit_turn_open_by_age",
    "turnkit_turn_open_in_lane",
    "turnkit_turn_one_runs_per_conversation",
    "turnkit_delivery_pending",
    "turnkit_delivery_unread",
}
LARGE = {"turnkit_turn", "turnkit_conversation", "turnkit_delivery", "turnkit_wait"}
OF_ONE_ROW = {"turnkit_turn_pkey", "turnkit_turn_of_parent"}


def test_a_scan_passes_over_finished_turns(much_history: list[Conversation]):
    assert {name: offences(scan, much_history) for name, scan in SCANS.items()} == {key: [] for key in SCANS}


def test_a_claim_looks_at_a_few_turns_of_a_long_backlog():
    for _ in range(3):
        helper.conversation().submit("please")
    with connection.cursor() as cursor:
        cursor.execute(BACKLOG)
        cursor.execute("ANALYZE turnkit_turn, turnkit_conversation")
    with CaptureQueriesContext(connection) as captured, transaction.atomic():
        assert len(Locks().free_lanes(limit=2)) == 2
    (sql,) = [query["sql"] for query in captured.captured_queries if query["sql"].startswith("SELECT ")]

    read = [
        node["Actual Rows"] * node["Actual Loops"] for node in nodes(plan(sql, is_run=True)) if "Index Name" in node
    ]

    assert sum(read) < 50


BACKLOG = """
WITH lane AS (
    INSERT INTO turnkit_conversation (id, agent_name, metadata, context)
    SELECT 'conv_' || lpad(n::text, 26, '0'), 'helper', '{}', '{}' FROM generate_series(1, 2000) n RETURNING id)
INSERT INTO turnkit_turn (id, conversation_id, agent_name, model, context, options, max_iterations, max_output_tokens,
                          lane_position, submitted_at)
SELECT replace(id, 'conv_', 'turn_'), id, 'helper', 'x', '{}', '{}', 1, 1, 1, clock_timestamp() FROM lane
"""


def offences(scan: Callable[[list[Conversation]], object], lanes: list[Conversation]) -> list[str]:
    """Where the plan of a scan reads what has ended, or conversations where nothing happens."""
    with CaptureQueriesContext(connection) as captured, transaction.atomic():
        scan(lanes)
    selects = [query["sql"] for query in captured.captured_queries if query["sql"].startswith("SELECT ")]
    found = [node for sql in selects for node in nodes(plan(sql))]
    assert {"turnkit_turn", "turnkit_delivery"} & {node.get("Relation Name") for node in found}
    return [
        f"{node['Node Type']} on {node.get('Relation Name')} {node.get('Index Name', '')}"
        for node in found
        # The other tables are empty here, and reading an empty table in one go is right.
        if (node["Node Type"] == "Seq Scan" and node["Relation Name"] in LARGE)
        or (
            str(node.get("Index Name")).startswith(("turnkit_turn", "turnkit_d"))
            and node["Index Name"] not in OF_WHAT_IS_OPEN | OF_ONE_ROW
        )
    ]


def updates(watching: psycopg.Connection[Any]) -> tuple[int, int]:
    """Of turns: all updates, and those that touched no index."""
    alone(watching)
    row = watching.execute("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'turnkit_turn'")
    found: tuple[int, int] | None = row.fetchone()
    assert found is not None
    return found


def test_progress_and_renewal_touch_no_index(turnkit_model: Callable[[Any], Any]):
    turnkit_model([call("unsafe", {"n": 1}), text("done")] * 5)
    conversation = helper.conversation()
    for _ in range(5):
        conversation.submit("please")
    with observer() as watching:
        before = updates(watching)
        for _ in range(5):
            (one,) = transitions.claim(runner.holder())
            transitions.renew([one.claim], lease_seconds=60)
            runner.run_claimed(one)

        all_updates, hot = (now - then for now, then in zip(updates(watching), before, strict=True))

    # Of each turn: claim, renewal, reply, start, result, end.
    assert all_updates == 5 * 6
    # Only the claim and the end change what a partial index asks for, the status.
    assert hot >= 5 * 4


def test_no_index_holds_a_column_that_progress_changes():
    progress = {
        "revision", "lease_expires_at", "claim_token", "phase", "iterations", "request_id", "attempt_id",
        "attempt_started_at", "attempts", "not_before", "wake_sent_at", "input_tokens", "output_tokens", "cost",
        "pending_dependencies", "open_steering", "open_waiters", "started_at",
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT attname FROM pg_index JOIN pg_attribute ON attrelid = indexrelid "
            "WHERE indrelid = 'turnkit_turn'::regclass"
        )
        indexed = {row[0] for row in cursor.fetchall()}
        cursor.execute("SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'turnkit_turn'::regclass")
        conditions = " ".join(row[0].partition(" WHERE ")[2] for row in cursor.fetchall())

    assert indexed & progress == set()
    assert [column for column in progress if f"{column} " in conditions] == []


@pytest.mark.parametrize("table", ["turnkit_turn", "turnkit_conversation"])
def test_pages_of_hot_tables_leave_room_for_updates(table: str):
    with connection.cursor() as cursor:
        cursor.execute("SELECT reloptions FROM pg_class WHERE oid = %s::regclass", [table])
        (options,) = cursor.fetchone()

    (fill,) = [int(option.partition("=")[2]) for option in options or [] if option.startswith("fillfactor=")]
    assert 70 <= fill <= 80
