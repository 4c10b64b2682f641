"""The wire of the benchmarks counts what the server says."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from benchmarks.wire import Answers, Traffic, Wire, open_wire
from tests.waiting import wait_until


def answer(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4, "big") + body


READY = answer(b"Z", b"I")
IN_TRANSACTION = answer(b"Z", b"T")
CONVERSATION = (
    answer(b"R", b"\0\0\0\0")
    + READY  # the end of the start-up
    + answer(b"C", b"BEGIN\0")
    + IN_TRANSACTION
    + answer(b"D", b"CZ" * 5)  # a row that looks like other answers
    + answer(b"C", b"SET\0")
    + answer(b"C", b"UPDATE 1\0")
    + IN_TRANSACTION
    + answer(b"C", b"COMMIT\0")
    + READY
    + answer(b"I", b"")
    + READY
)


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_answers_are_counted_however_they_are_cut(size: int):
    answers = Answers()
    pieces = [CONVERSATION[place : place + size] for place in range(0, len(CONVERSATION), size)]
    found = [answers.read(piece) for piece in pieces]

    assert sum(one.round_trips for one in found) == 4
    assert sum(one.statements for one in found) == 4
    assert sum(one.transaction_control for one in found) == 2
    assert sum(one.transactions for one in found) == 1


@pytest.fixture
def wire() -> Iterator[Wire]:
    with open_wire(Path(str(conninfo_to_dict(os.environ["DATABASE_URL"])["host"]))) as wire:
        yield wire


def said(wire: Wire, talk: Callable[[psycopg.Connection[Any]], object], **options: Any) -> Traffic:
    through = make_conninfo(os.environ["DATABASE_URL"], host=str(wire.folder))
    with psycopg.connect(through, autocommit=True, **options) as connection:
        before = wire.traffic
        talk(connection)
        return wire.traffic - before


def test_a_message_of_several_statements_is_one_round_trip(wire: Wire):
    found = said(wire, lambda connection: connection.execute("SELECT 1; SELECT 2"), cursor_factory=psycopg.ClientCursor)
    assert found == Traffic(round_trips=1, statements=2, transaction_control=0, transactions=1)


def test_both_protocols_are_counted_alike(wire: Wire):
    found = said(wire, lambda connection: connection.execute("SELECT %s::int", [1]))
    assert found == Traffic(round_trips=1, statements=1, transaction_control=0, transactions=1)


def test_a_transaction_is_counted_once_with_its_begin_and_commit(wire: Wire):
    def talk(connection: psycopg.Connection[Any]) -> None:
        with connection.transaction():
            connection.execute("SELECT 1")

    assert said(wire, talk) == Traffic(round_trips=3, statements=3, transaction_control=2, transactions=1)


def test_a_failed_statement_is_a_round_trip_and_no_statement(wire: Wire):
    def talk(connection: psycopg.Connection[Any]) -> None:
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")

    assert said(wire, talk) == Traffic(round_trips=1)


def test_the_wire_leaves_no_folder(wire: Wire):
    with open_wire(wire.folder) as other:
        folder = other.folder
        wait_until((folder / ".s.PGSQL.5432").exists)
    assert not folder.exists()
