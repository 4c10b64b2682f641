"""What a tool turn costs: every message to the server is listed here, and each transaction that writes is counted."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.concurrency.threads import observer
from tests.store.wire import Wire, is_setup, open_wire
from turnkit_django import Agent, register, tool
from turnkit_django.engine import heartbeat, runner
from turnkit_django.models import Conversation, Turn
from turnkit_django.testing import assert_clean, call, text

pytestmark = pytest.mark.django_db(transaction=True)


@tool(recovery="replay_safe")
def quiet_safe(n: int = 0) -> dict[str, int]:
    """Touch no database; may be repeated."""
    return {"n": n}


@tool
def quiet_unknown(n: int = 0) -> dict[str, int]:
    """Touch no database."""
    return {"n": n}


CLAIM = [
    "BEGIN",
    "SELECT turnkit_turn … FOR NO KEY UPDATE",  # joined with the lanes, which alone are locked
    "SELECT turnkit_turn … FOR NO KEY UPDATE",
    "SELECT clock_timestamp()",
    "UPDATE turnkit_turn",
    "COMMIT",
]
READ = ["SELECT turnkit_message"]
STORE_REPLY = ["lane, fence, seq, message, calls"]
START_TOOL = ["fence, started"]
SETTLE_TOOL = ["lane, fence, settled, seq, message, started"]
COMPLETE = [
    "BEGIN",
    "SELECT turnkit_conversation … FOR NO KEY UPDATE",
    "SELECT turnkit_turn … FOR NO KEY UPDATE",
    "INSERT turnkit_message",
    "UPDATE turnkit_conversation",
    "UPDATE turnkit_turn",
    "COMMIT",
]
SAFE = CLAIM + READ + STORE_REPLY + SETTLE_TOOL + READ + COMPLETE
UNKNOWN = CLAIM + READ + STORE_REPLY + START_TOOL + SETTLE_TOOL + READ + COMPLETE


@pytest.fixture
def conversation() -> Conversation:
    agent = register(Agent(name="quiet", model="openai/gpt-5-mini", tools=[quiet_safe, quiet_unknown]))
    conversation: Conversation = agent.conversation()
    return conversation


@pytest.fixture(autouse=True)
def between_two_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process renews its leases every 20 seconds, which may fall into any turn."""
    monkeypatch.setattr(heartbeat, "renew_all", lambda: True)


@pytest.fixture
def wire(transactional_db: None) -> Iterator[Wire]:
    with open_wire() as wire:
        yield wire


@pytest.fixture
def watching(transactional_db: None) -> Iterator[psycopg.Connection[Any]]:
    with observer() as watching:
        yield watching


def short(sql: str) -> str:
    """A message as a line of the list: the kind of its statement and its table, or the names of its parts."""
    statement = sql.rpartition("SET LOCAL")[2].partition(";")[2] or sql
    words = statement.replace('"', "").split()
    if words[0] == "WITH":
        return ", ".join(before for before, word in itertools.pairwise(words) if word == "AS" and _is_part(before))
    tables = [word for word in words if word.startswith("turnkit_") and "." not in word]
    lock = " … FOR NO KEY UPDATE" if "FOR NO KEY UPDATE" in " ".join(words) else ""
    return " ".join([words[0], *tables[:1]]) + lock if tables else " ".join(words)


def _is_part(name: str) -> bool:
    return name in {"lane", "fence", "seq", "message", "calls", "settled", "started"}


def transactions(watching: psycopg.Connection[Any]) -> int:
    """How many transaction ids the cluster has given out: each transaction that writes or locks takes one."""
    found = watching.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.parametrize(("name", "expected"), [("quiet_safe", SAFE), ("quiet_unknown", UNKNOWN)])
def test_a_tool_turn_says_this_to_the_server_and_no_more(
    name: str, expected: list[str], conversation: Conversation, wire: Wire, turnkit_model: Callable[[Any], Any]
):
    model = turnkit_model([call(name, {"n": 1}), text("done")])
    conversation.submit("please")
    start = len(wire.sent)

    assert runner.run_next()

    sent = [message.sql for message in wire.sent[start:]]
    work = [short(sql) for sql in sent if not is_setup(sql)]
    print(f"{name}: {len(work)} round trips", *work, sep="\n  ")  # noqa: T201
    assert work == expected
    assert len(work) <= 20
    # The pool of the test settings checks a connection each time the worker takes one back.
    assert len(sent) - len(work) <= 3
    assert_clean(model=model)


@pytest.mark.parametrize(("name", "expected"), [("quiet_safe", 5), ("quiet_unknown", 6)])
def test_a_tool_turn_writes_in_so_many_transactions_its_submission_included(
    name: str,
    expected: int,
    conversation: Conversation,
    watching: psycopg.Connection[Any],
    turnkit_model: Callable[[Any], Any],
):
    counts = []
    for _ in range(3):
        turnkit_model([call(name, {"n": 1}), text("done")])
        before = transactions(watching)
        conversation.submit("please")
        assert runner.run_next()
        counts.append(transactions(watching) - before)

    # Other work of the cluster, such as autovacuum, can add to a count, never take from it.
    assert min(counts) == expected
    assert set(Turn.objects.values_list("status", flat=True)) == {"completed"}


def test_the_count_of_transactions_counts(watching: psycopg.Connection[Any], conversation: Conversation):
    before = transactions(watching)
    conversation.say("one")
    conversation.say("two")
    after = transactions(watching)
    list(Turn.objects.all())

    assert after - before >= 2
    assert transactions(watching) - after <= 1


def test_a_submission_is_one_transaction(conversation: Conversation, wire: Wire):
    start = len(wire.sent)
    conversation.submit("please")

    sent = [message.sql for message in wire.sent[start:] if not is_setup(message.sql)]
    assert (sent[0], sent[-1], sent.count("COMMIT")) == ("BEGIN", "COMMIT", 1)
    assert len(sent) <= 12


def test_an_idle_claim_writes_nothing(conversation: Conversation, watching: psycopg.Connection[Any]):
    counts = []
    for _ in range(3):
        before = transactions(watching)
        assert not runner.run_next()
        counts.append(transactions(watching) - before)

    assert min(counts) == 0
