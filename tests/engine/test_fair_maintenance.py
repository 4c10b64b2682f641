"""No row keeps maintenance from the rows behind it: not one that somebody holds, not one that cannot be written."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import DateTimeField, F, QuerySet

from tests.concurrency.threads import Held, closing
from tests.testapp.agents import helper
from turnkit_django.engine import reconcile, runner
from turnkit_django.models import Conversation, Delivery, Turn
from turnkit_django.models.querysets import ClockTime
from turnkit_django.store import connections, transitions
from turnkit_django.testing import assert_clean, drain, text

pytestmark = pytest.mark.django_db(transaction=True)

BATCH, BAD = 2, 3


@pytest.fixture(autouse=True)
def _model(turnkit_model: Callable[[Any], object]) -> None:
    turnkit_model(lambda _request: text("hi"))


def expired(lane: Conversation) -> None:
    lane.submit("Go")
    transitions.claim(runner.holder())
    Turn.objects.filter(conversation=lane).update(claimed_by="gone:1:1", lease_expires_at=ClockTime())


def ready(lane: Conversation) -> None:
    lane.submit("Go")
    Turn.objects.filter(conversation=lane).update(status="waiting", not_before=ClockTime())


def miscounted(lane: Conversation) -> None:
    lane.submit("Go")
    Turn.objects.filter(conversation=lane).update(status="waiting", pending_dependencies=1)


def overdue(lane: Conversation) -> None:
    lane.submit("Go")
    Turn.objects.filter(conversation=lane).update(deadline_at=ClockTime())


def unwoken(lane: Conversation) -> None:
    lane.submit("Go")
    Turn.objects.filter(conversation=lane).update(wake_sent_at=None)


def pending(lane: Conversation) -> None:
    lane.post("hello", key="k")


def unread(lane: Conversation) -> None:
    transitions.deliver(lane.post("hello", key="k").pk, draft=None)


@dataclass(frozen=True)
class Kind:
    """A kind of row that maintenance looks for.

    Attributes:
        prepare: Makes one in a conversation; each is younger than the one before.
        is_handled: Whether maintenance has done what it does.
        poison: What the database refuses: table and condition on OLD and NEW, where the conversation is `{lane}`.
    """

    prepare: Callable[[Conversation], None]
    is_handled: Callable[[Conversation], bool]
    poison: tuple[str, str]
    takes_lane: bool = True


def turn_of(lane: Conversation) -> Turn:
    return lane.turns.get()


MOVED = ("turnkit_turn", "NEW.conversation_id IN ({lanes}) AND NEW.status <> OLD.status")
KINDS = {
    "expired": Kind(expired, lambda lane: turn_of(lane).status == "pending", MOVED),
    "ready": Kind(ready, lambda lane: turn_of(lane).status == "pending", MOVED),
    "miscounted": Kind(
        miscounted,
        lambda lane: turn_of(lane).pending_dependencies == 0,
        ("turnkit_turn", "NEW.conversation_id IN ({lanes}) AND NEW.pending_dependencies = 0"),
        takes_lane=False,
    ),
    "overdue": Kind(overdue, lambda lane: turn_of(lane).status == "failed", MOVED),
    "unwoken": Kind(
        unwoken,
        lambda lane: turn_of(lane).wake_sent_at is not None,
        ("turnkit_turn", "NEW.conversation_id IN ({lanes}) AND NEW.wake_sent_at IS NOT NULL"),
        takes_lane=False,
    ),
    "pending": Kind(
        pending,
        lambda lane: lane.inbox.get().delivered_at is not None,
        ("turnkit_delivery", "NEW.destination_id IN ({lanes}) AND NEW.delivered_at IS NOT NULL"),
    ),
    "unread": Kind(
        unread,
        lambda lane: lane.turns.exists(),
        ("turnkit_delivery", "NEW.destination_id IN ({lanes}) AND NEW.receiving_turn_id IS NOT NULL"),
    ),
}
OF_LANES = {name: kind for name, kind in KINDS.items() if kind.takes_lane}
ANY_WRITE = {"turnkit_turn": "NEW.conversation_id IN ({lanes})", "turnkit_delivery": "NEW.destination_id IN ({lanes})"}


def lanes_with(kind: Kind, count: int) -> list[Conversation]:
    lanes = [helper.conversation() for _ in range(count)]
    for lane in lanes:
        kind.prepare(lane)
    return lanes


def lock(rows: QuerySet[Any]) -> Callable[[], object]:
    return lambda: list(rows.select_for_update(of=("self",), no_key=True))


def rows_of(kind: Kind, lanes: list[Conversation]) -> QuerySet[Any]:
    if kind.poison[0] == "turnkit_delivery":
        return Delivery.objects.filter(destination__in=lanes)
    return Turn.objects.filter(conversation__in=lanes)


@contextmanager
def refusing(table: str, condition: str, lanes: list[Conversation]) -> Iterator[None]:
    """PostgreSQL refuses such updates of the rows of those lanes."""
    listed = ", ".join(f"'{lane.pk}'" for lane in lanes)
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"IF {condition.format(lanes=listed)} THEN RAISE EXCEPTION 'poisoned'; END IF; RETURN NEW; END $$; "
            f"CREATE TRIGGER refuse BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TRIGGER refuse ON {table}; DROP FUNCTION refuse()")


def a_minute_passes() -> None:
    """All times of the rows are a minute and a second longer ago."""
    for model in (Turn, Delivery):
        times = [field.name for field in model._meta.get_fields() if isinstance(field, DateTimeField)]
        model.objects.update(**{name: F(name) - timedelta(seconds=61) for name in times})


def handled(kind: Kind, lanes: list[Conversation]) -> list[bool]:
    return [kind.is_handled(lane) for lane in lanes]


@pytest.mark.parametrize("name", OF_LANES)
def test_lanes_that_somebody_holds_at_the_head_of_a_scan_are_passed_over_without_waiting(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connections, "_bounds", lambda lock_seconds: "SET LOCAL lock_timeout = 0; ")  # for ever
    kind = KINDS[name]
    lanes = lanes_with(kind, BAD + 1)
    held = [lane.pk for lane in lanes[:BAD]]

    with Held(lock(Conversation.objects.filter(pk__in=held).order_by("pk"))).open():
        counts = reconcile.run_pass(batch=BATCH)
        assert handled(kind, lanes) == [False] * BAD + [True]

    assert counts.errors == 0


@pytest.mark.parametrize("name", [name for name in KINDS if name != "unread"])
def test_rows_that_somebody_holds_at_the_head_of_a_scan_keep_none_behind_them_waiting(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    kind = KINDS[name]
    lanes = lanes_with(kind, BAD + 1)
    bounds, asked = connections._bounds, set()

    def noting(lock_seconds: float) -> str:
        asked.add(lock_seconds)
        return bounds(lock_seconds)

    monkeypatch.setattr(connections, "_bounds", noting)
    with Held(lock(rows_of(kind, lanes[:BAD]))).open():
        counts = reconcile.run_pass(batch=BATCH)
        assert handled(kind, lanes) == [False] * BAD + [True]

    assert (counts.errors, max(asked) < 0.1) == (0, True)


@pytest.mark.parametrize("name", KINDS)
def test_rows_that_fail_at_the_head_of_a_scan_do_not_come_back_before_those_behind_them(name: str):
    """The passes come from cron: each time the rows that failed have waited long enough to be looked at again."""
    kind = KINDS[name]
    lanes = lanes_with(kind, BAD + 1)

    with refusing(*kind.poison, lanes[:BAD]):
        for _ in range(BAD // BATCH + 1):
            counts = reconcile.run_pass(batch=BATCH)
            assert counts.errors <= BATCH
            a_minute_passes()
        assert handled(kind, lanes) == [False] * BAD + [True]


@pytest.mark.parametrize("name", KINDS)
def test_rows_that_cannot_even_be_set_aside_keep_none_behind_them_waiting(name: str):
    kind = KINDS[name]
    lanes = lanes_with(kind, BAD + 1)
    table = kind.poison[0]

    with refusing(table, ANY_WRITE[table], lanes[:BAD]):
        counts = reconcile.run_pass(batch=BATCH)
        assert handled(kind, lanes) == [False] * BAD + [True]

    assert counts.errors == BAD


def test_a_pass_ends_where_nothing_can_be_written_at_all():
    lanes = lanes_with(KINDS["overdue"], 15)

    with refusing("turnkit_turn", "true", lanes):
        assert reconcile.run_pass(batch=1).errors == 10 * len(("overdue",))


@pytest.mark.parametrize("name", OF_LANES)
def test_two_passes_at_once_share_the_rows_and_wait_for_no_one(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "_bounds", lambda lock_seconds: "SET LOCAL lock_timeout = 0; ")
    kind = KINDS[name]
    moves = {"expired": "recover", "overdue": "give_up", "pending": "deliver", "unread": "continue_lane"}
    lanes = lanes_with(kind, 3)
    first = Held(lambda: reconcile.run_pass(batch=10), point=f"{moves.get(name, name)}.written")

    with first.open() as mine, ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(closing(lambda: reconcile.run_pass(batch=10))).result(30)
        assert sum(handled(kind, lanes)) == 2

    counts = [mine.result(), theirs]
    done = {"expired": "recovered", "ready": "readied", "overdue": "overdue", "pending": "delivered"}
    assert [getattr(each, done.get(name, "continued")) for each in counts] == [1, 2]
    assert [each.errors for each in counts] == [0, 0]
    drain()
    assert_clean()
