"""The raw results of a run become tables, and the tables find their place in a page."""

from typing import Any

import pytest

from benchmarks.table import BEGIN, END, PageError, put_into, tables

TRAFFIC = {"round_trips": 20.0, "statements": 25.0, "transaction_control": 4.0, "transactions": 6.0}


def backlog(system: str, number: int, per_second: float, foreign: float = 0.1) -> dict[str, Any]:
    return {
        "kind": "backlog",
        "round": number,
        "system": system,
        "workers": 1,
        "per_second": per_second,
        "client_cpu_ms": 6.0,
        "postgres_cpu_ms": 2.0,
        "left_over_cpu_ms": 0.5,
        "write_transactions": 5.0,
        "wal_bytes": 6500.0,
        "rss_mb": 70.0,
        "connections": 1,
        "foreign_cores": foreign,
    }


def single(system: str, number: int, *samples: float) -> dict[str, Any]:
    figures = {"samples_ms": list(samples), "client_cpu_ms": 9.0, "foreign_cores": 0.0}
    return {"kind": "one", "round": number, "system": system} | figures


@pytest.fixture
def measured() -> dict[str, Any]:
    return {
        "conditions": {
            "date": "2026-01-31",
            "plan": {"rounds": 2, "turns": 100, "jobs": 200, "single": 3, "wire": 5},
            "cores": 2,
            "memory_gib": 8,
            "system": "Linux",
            "python": "3.11.0",
            "packages": {"django": "5.2"},
            "postgres": {"server_version": "18.4", "fsync": "on"},
            "valkey": "9.1",
            "systems": {"turnkit": {"title": "turnkit_django"}, "dbos": {"title": "DBOS"}},
            "settings": {"turnkit": {"worker": "plain"}, "dbos": {"worker": "polls"}},
        },
        "results": [
            backlog("turnkit", 0, 20),
            backlog("turnkit", 1, 60),
            backlog("dbos", 0, 10),
            backlog("dbos", 1, 20, foreign=2.0),
            single("turnkit", 0, 10, 11, 30),
            single("turnkit", 1, 12, 13, 14),
            single("dbos", 0, 50, 55, 60),
            single("dbos", 1, 50, 52, 60),
            {"kind": "wire", "system": "turnkit", "backlog": TRAFFIC, "one": TRAFFIC},
        ],
    }


def cells(text: str, *beginning: str) -> list[str]:
    """The one row that begins so."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    (found,) = [row for row in rows if tuple(row[: len(beginning)]) == beginning]
    return found


def test_a_row_holds_medians_and_their_range(measured: dict[str, Any]):
    found = cells(tables(measured), "turnkit_django", "1")
    assert found[2:8] == ["40 (20 to 60)", "6.0", "2.0", "0.5", "5.0", "6.5"]


def test_latencies_are_medians_of_rounds_and_a_tail_of_all_samples(measured: dict[str, Any]):
    found = cells(tables(measured), "turnkit_django", "12.0 (11.0 to 13.0)")
    assert found[2:4] == ["30.0", "10.0"]


def test_a_row_that_others_disturbed_is_marked(measured: dict[str, Any]):
    text = tables(measured)
    assert cells(text, "DBOS (!)", "1")
    assert cells(text, "turnkit_django", "1")


def test_ratios_compare_neighbours(measured: dict[str, Any]):
    assert cells(tables(measured), "per second, workers: 1", "DBOS")[2] == "2.50 (2.00 to 3.00)"


def test_goals_are_told_with_what_was_measured(measured: dict[str, Any]):
    text = tables(measured)
    assert cells(text, "WAL of a turn")[1:] == ["≤ 8 kB", "6.50 kB", "yes"]
    assert cells(text, "round trips of the worker for a turn of a backlog")[1:] == ["≤ 8", "20.00", "no"]
    assert "2 workers" not in text


def test_the_conditions_are_told(measured: dict[str, Any]):
    text = tables(measured)
    for told in ("2026-01-31", "PostgreSQL 18.4 (fsync on)", "django 5.2", "backlog: 100 turns", "worker polls"):
        assert told in text


def test_tables_replace_those_of_a_page_and_nothing_else():
    page = f"# Title\n\n{BEGIN}\nold\n{END}\n\nThe end.\n"
    assert put_into(page, "new") == f"# Title\n\n{BEGIN}\n\nnew\n\n{END}\n\nThe end.\n"
    assert put_into(put_into(page, "new"), "new") == put_into(page, "new")


@pytest.mark.parametrize("page", ["", BEGIN, f"{END}{BEGIN}"])
def test_a_page_without_a_place_is_refused(page: str):
    with pytest.raises(PageError, match="expected the lines"):
        put_into(page, "new")
