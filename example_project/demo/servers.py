"""A PostgreSQL and a Redis for one run: embedded ones, or a corner of those that the environment names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import psycopg
import redis
from psycopg import sql

from example_project.demo.footprint import Footprint
from example_project.demo.outcome import DemoError
from turnkit_django.testing.servers import embedded_servers

_CONNECT_SECONDS = 5


@dataclass
class Place:
    """Where the run keeps its rows and its wake-ups.

    Attributes:
        notes: What a person should know about it.
        leftovers: Filled when the place is closed: what could not be removed from servers that are not ours.
    """

    notes: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)


@contextmanager
def servers(run: Footprint, place: Place) -> Iterator[None]:
    """Name both servers in the environment, for this process and its children.

    Raises:
        DemoError: One cannot be reached or started.
    """
    given_database, given_redis = (os.environ.get(name, "") for name in ("DATABASE_URL", "REDIS_URL"))
    with ExitStack() as stack:
        try:
            started = stack.enter_context(embedded_servers(postgres=not given_database, redis=not given_redis))
        except RuntimeError as error:
            advice = "with DATABASE_URL and REDIS_URL set, your own PostgreSQL and Redis are used instead"
            raise DemoError(f"the embedded servers did not start; {advice}", log=str(error)) from None
        database_url, redis_url = started.database_url, started.redis_url
        if given_database:
            database_url = stack.enter_context(_own_database(given_database, run.name, place))
        else:
            run.remember_server(database_url)
            place.notes.append("PostgreSQL: an embedded one, started for this run")
        if given_redis:
            stack.enter_context(_own_keys(given_redis, run.name, place))
        else:
            place.notes.append("Redis: an embedded Valkey, started for this run")
        os.environ |= {"DATABASE_URL": database_url, "REDIS_URL": redis_url}
        run.look()
        yield


@contextmanager
def _own_database(url: str, name: str, place: Place) -> Iterator[str]:
    """A throw-away database, because the demo's rows do not belong into anybody's own."""
    with _connected(url) as connection:
        try:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        except psycopg.errors.InsufficientPrivilege:
            info = f"{connection.info.dbname!r} on {connection.info.host!r}"
            place.notes.append(f"PostgreSQL: the database {info} itself; its user may not create one: rows will stay")
            yield url
            return
        place.notes.append(f"PostgreSQL: the database {name} on {connection.info.host!r} of DATABASE_URL, thrown away")
        try:
            yield _with_database(url, name)
        finally:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
            if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
                place.leftovers.append(f"the database {name}")


def _connected(url: str) -> psycopg.Connection:
    try:
        return psycopg.connect(url, autocommit=True, connect_timeout=_CONNECT_SECONDS)
    except psycopg.Error as error:
        # The message names the host, never the password.
        raise DemoError(f"DATABASE_URL names a PostgreSQL that cannot be used: {error}".strip()) from None


def _with_database(url: str, name: str) -> str:
    # By hand: `urlsplit` would take the encoded socket folder of a host apart and write it in lower case.
    address, question, options = url.partition("?")
    scheme, _, rest = address.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}/{name}{question}{options}"


@contextmanager
def _own_keys(url: str, prefix: str, place: Place) -> Iterator[None]:
    """A prefix for all keys of RQ: other workers on that Redis neither take the demo's jobs nor give it theirs."""
    os.environ["RQ_KEY_PREFIX"] = prefix
    with redis.Redis.from_url(url, socket_connect_timeout=_CONNECT_SECONDS) as client:
        try:
            client.ping()
        except (redis.RedisError, OSError) as error:
            raise DemoError(f"REDIS_URL names a Redis that cannot be used: {error}") from None
        place.notes.append(f"Redis: that of REDIS_URL, under keys that begin with {prefix}")
        try:
            yield
        finally:
            for key in client.scan_iter(f"{prefix}*", count=1000):
                client.delete(key)
            place.leftovers += [f"the Redis key {key!r}" for key in client.scan_iter(f"{prefix}*", count=1000)]
