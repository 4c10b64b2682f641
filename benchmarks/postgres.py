"""The PostgreSQL of a run: fresh databases out of templates, and the counters that tell what a turn costs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

from benchmarks import load

DATABASE = "bench"
"""The database of the measurement at hand; each begins with a fresh one, so that all meet tables of the same size."""

_PORT = 5432


@dataclass(frozen=True, slots=True)
class Counters:
    """What the cluster has done so far.

    Attributes:
        write_transactions: Transaction ids given out; each transaction that writes or locks rows takes one.
        wal_bytes: The length of the write-ahead log.
    """

    write_transactions: int
    wal_bytes: int

    def __sub__(self, before: Counters) -> Counters:
        return Counters(self.write_transactions - before.write_transactions, self.wal_bytes - before.wal_bytes)


class Cluster:
    """An embedded PostgreSQL, seen by its owner.

    Args:
        url: Of its maintenance database; the host is a socket folder, which is the data folder too.
    """

    def __init__(self, url: str) -> None:
        self._admin = psycopg.connect(url, autocommit=True)
        self.folder = Path(self._admin.info.host)
        self._postmaster = psutil.Process(int((self.folder / "postmaster.pid").read_text().split()[0]))
        self._own_backends = {self._admin.info.backend_pid}

    def close(self) -> None:
        self._admin.close()

    def url(self, database: str = DATABASE, *, folder: Path | None = None) -> str:
        """Of a database, through the server's own socket folder or through that of a wire."""
        return f"postgresql://postgres@{quote(str(folder or self.folder), safe='')}:{_PORT}/{database}"

    def start_template(self) -> None:
        """An empty database, to be filled and then kept by `keep_template`."""
        self._recreate(DATABASE, sql.SQL("template1"))

    def keep_template(self, system: str) -> None:
        """The database as it is now is what `start` begins with."""
        self._recreate(f"{system}_template", sql.Identifier(DATABASE))

    def start(self, system: str) -> None:
        """A fresh database; the log begins with a checkpoint, and the next one is minutes away."""
        self._recreate(DATABASE, sql.Identifier(f"{system}_template"))
        self._admin.execute("CHECKPOINT")

    def _recreate(self, name: str, template: sql.Composable) -> None:
        identifier = sql.Identifier(name)
        self._admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(identifier))
        self._admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(identifier, template))

    @contextmanager
    def watching(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection to look with, whose backend is not counted."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            pid = connection.info.backend_pid
            self._own_backends.add(pid)
            try:
                yield connection
            finally:
                self._own_backends.discard(pid)

    def counters(self) -> Counters:
        row = self._one(
            "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint,"
            " (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint"
        )
        return Counters(*row)

    def cpu_seconds(self) -> float:
        """Of the server and all its processes but those that this benchmark looks with."""
        return load.tree_seconds(self._postmaster, without=self._own_backends)

    def backends(self) -> set[int]:
        """Process ids that serve clients of the database of the measurement."""
        query = b"SELECT pid FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
        return {pid for (pid,) in self._admin.execute(query, [DATABASE])}

    def facts(self) -> dict[str, str]:
        """The version, and the settings that decide what a commit is worth."""
        names = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers")
        return {name: str(self._one("SELECT current_setting(%s)", name)[0]) for name in names}

    def _one(self, query: str, *values: Any) -> tuple[Any, ...]:
        row = self._admin.execute(query.encode(), values or None).fetchone()
        assert row is not None  # noqa: S101  each query asks for values, not for rows
        return row
