"""What becomes of the servers: the queue is emptied, PostgreSQL is restarted under everybody's feet."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import psutil
import redis
from django.db import connection
from psycopg.conninfo import conninfo_to_dict

_SECONDS = 60


class Postgres:
    """The embedded PostgreSQL, controlled by the `pg_ctl` that lies beside the program that runs.

    Args:
        url: Of a database; the host is a socket folder, which is the data folder too.
    """

    def __init__(self, url: str) -> None:
        self._data = Path(str(conninfo_to_dict(url)["host"]))
        server = psutil.Process(int((self._data / "postmaster.pid").read_text().split()[0]))
        self._program = Path(server.exe()).with_name("pg_ctl")
        # pg_ctl wants to be the server's user.
        is_own = server.uids().real == psutil.Process().uids().real
        self._identity: dict[str, Any] = {} if is_own else {"user": server.uids().real, "group": server.gids().real}
        # That of the embedded server, which may be of another user, and one for the server that comes after it.
        self._logs = (self._data.with_name("postgres.log"), self._data / "restarted.log")
        self._restart: subprocess.Popen[bytes] | None = None

    def restart(self) -> None:
        """Begin to: without a word to its clients, and with a recovery from the log, as after a loss of power."""
        self._restart = self._control("restart", "-m", "immediate", "-l", str(self._logs[1]))

    def stop(self) -> None:
        """If it was restarted: who had started it stops only the one it knows."""
        if self._restart is not None:
            self._restart.wait(_SECONDS)
            self._control("stop", "-m", "fast").wait(_SECONDS)

    @property
    def is_restarted(self) -> bool:
        return self._restart is not None and self._restart.poll() == 0

    def deadlocks(self) -> int:
        return sum(log.read_text(errors="replace").count("deadlock detected") for log in self._logs if log.exists())

    def _control(self, action: str, *options: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self._program, action, "-D", self._data, "-w", "-t", str(_SECONDS), *options],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **self._identity,
        )


def versions(redis_url: str) -> str:
    """Of both servers, as they say."""
    with redis.Redis.from_url(redis_url) as client:
        found = client.info("server")
    valkey = found.get("valkey_version") or found["redis_version"]
    return "PostgreSQL {}.{}, Valkey {}".format(*divmod(connection.pg_version, 10000), valkey)


def flush(redis_url: str) -> None:
    """Forget every wake-up, and every worker's registration with it."""
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
