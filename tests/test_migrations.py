from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone


@pytest.mark.django_db
def test_the_migrations_describe_the_models() -> None:
    # Exits with status 1 when a migration is missing.
    call_command("makemigrations", check=True, dry_run=True)


FIRST, SECOND = [("turnkit", f"000{number}_{name}") for number, name in ((1, "initial"), (2, "deliveries_and_joins"))]


def migrated_to(name: tuple[str, str]) -> None:
    MigrationExecutor(connection).migrate([name])


def rows(table: str) -> list[dict[str, object]]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} ORDER BY id")
        columns = [column.name for column in cursor.description]
        return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


@pytest.fixture
def _newest_afterwards(transactional_db: None) -> Iterator[None]:
    newest = [key for key in MigrationExecutor(connection).loader.graph.leaf_nodes() if key[0] == "turnkit"]
    yield
    MigrationExecutor(connection).migrate(newest)


@pytest.mark.usefixtures("_newest_afterwards")
def test_deliveries_and_joins_come_and_go_without_touching_the_rows_that_are_there() -> None:
    migrated_to(FIRST)
    apps = MigrationExecutor(connection).loader.project_state([FIRST]).apps
    lane = apps.get_model("turnkit", "Conversation").objects.create(id="conv_old", agent_name="helper")
    turns = apps.get_model("turnkit", "Turn").objects
    now = timezone.now()
    options = {"agent_name": "helper", "model": "x", "max_iterations": 1, "max_output_tokens": 1}
    first, second = (
        turns.create(id=f"turn_{n}", conversation=lane, lane_position=n, submitted_at=now, **options) for n in (1, 2)
    )
    apps.get_model("turnkit", "Wait").objects.create(id="wait_old", turn=second, target=first)
    apps.get_model("turnkit", "Delivery").objects.create(id="dlv_old", destination=lane, key="k", text="hello")
    tables = [f"turnkit_{name}" for name in ("conversation", "turn", "wait", "delivery")]
    before = [rows(table) for table in tables]

    migrated_to(SECOND)
    after = [rows(table) for table in tables]
    migrated_to(FIRST)

    for old, new in zip(before, after, strict=True):
        assert [kept.items() <= row.items() for kept, row in zip(old, new, strict=True)] == [True] * len(old)
        assert all(len(row) > len(kept) for kept, row in zip(old, new, strict=True))
    assert [rows(table) for table in tables] == before
