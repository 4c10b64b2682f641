"""One order of locks, checked while it runs."""

from collections.abc import Callable

import pytest
from django.db import connection, transaction

from tests.concurrency.threads import Held, observer
from tests.testapp.agents import helper
from turnkit_django.errors import LockOrderViolation
from turnkit_django.models import Delivery, Turn
from turnkit_django.store.locks import Locks, Rank

pytestmark = pytest.mark.django_db

TAKE: dict[str, tuple[Rank, Callable[[Locks, Turn], object]]] = {
    "graph": (Rank.GRAPH, lambda locks, turn: locks.graph()),
    "root": (Rank.ROOT, lambda locks, turn: locks.root(turn.pk)),
    "lane": (Rank.LANE, lambda locks, turn: locks.lane(turn.conversation_id)),
    "lanes": (Rank.LANE, lambda locks, turn: locks.lanes([turn.conversation_id])),
    "free_lanes": (Rank.LANE, lambda locks, turn: locks.free_lanes(limit=1)),
    "turn": (Rank.TURN, lambda locks, turn: locks.turn(turn.pk)),
    "turn_with_waiters": (Rank.TURN, lambda locks, turn: locks.turn_with_waiters(turn.pk)),
    "turns_with_waiters": (Rank.TURN, lambda locks, turn: locks.turns_with_waiters([turn.pk])),
    "turns": (Rank.TURN, lambda locks, turn: locks.turns(Turn.objects.all())),
    "idle_turns": (Rank.TURN, lambda locks, turn: locks.idle_turns(Turn.objects.all(), limit=1)),
    "executions": (Rank.EXECUTION, lambda locks, turn: locks.executions(turn.pk, statuses=["pending"])),
    "delivery": (Rank.DELIVERY, lambda locks, turn: locks.delivery(Delivery.objects.get().pk)),
    "deliveries": (Rank.DELIVERY, lambda locks, turn: locks.deliveries([Delivery.objects.get().pk])),
}


ROOT_CLASS = int.from_bytes(b"turn")
ROOT_KEYS = (
    "SELECT classid::bigint, objid::bigint, mode FROM pg_locks WHERE locktype = 'advisory' "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
"""The advisory locks of this database. The server shows their two halves as unsigned numbers."""


@pytest.fixture
def turn() -> Turn:
    conversation = helper.conversation()
    conversation.post("hello", key="k")
    return conversation.submit("please")


def test_every_lock_is_in_the_table():
    methods = {name for name in vars(Locks) if not name.startswith("_")}

    assert methods == set(TAKE)


@pytest.mark.parametrize("second", TAKE)
@pytest.mark.parametrize("first", TAKE)
def test_locks_are_taken_downwards_only(first: str, second: str, turn: Turn):
    (rank, take), (next_rank, take_next) = TAKE[first], TAKE[second]
    with transaction.atomic():
        locks = Locks()
        take(locks, turn)
        # Executions of several turns are locked one after the other, each behind its turn's lock.
        if next_rank > rank or first == second == "executions":
            take_next(locks, turn)
            return
        with pytest.raises(LockOrderViolation, match=f"{next_rank.name} asked for after {rank.name}"):
            take_next(locks, turn)


def test_the_keys_of_roots_fit_into_an_advisory_key_and_differ(turn: Turn):
    with transaction.atomic():
        for each in range(200):
            Locks().root(f"turn_{each}")
        with connection.cursor() as cursor:
            cursor.execute(f"{ROOT_KEYS} AND pid = pg_backend_pid()")
            keys = {key for _, key, _ in cursor.fetchall()}
    assert len(keys) >= 199  # two roots that share a key by chance only wait for each other


@pytest.mark.django_db(transaction=True)
def test_a_cancellation_holds_the_key_of_its_root_until_it_commits(turn: Turn):
    with observer() as watching:
        with Held(turn.cancel, point="cancel.written").open():
            held = watching.execute(ROOT_KEYS).fetchall()
        after = watching.execute(ROOT_KEYS).fetchall()

    assert ([(space, mode) for space, _, mode in held], after) == ([(ROOT_CLASS, "ExclusiveLock")], [])
    turn.refresh_from_db()
    assert turn.status == "cancelled"
