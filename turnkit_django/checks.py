"""System checks: one function a message, with stable ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Warning, register
from django.db import connections as databases
from django.utils import timezone
from django.utils.module_loading import import_string

from turnkit_django import conf
from turnkit_django.agents import registry
from turnkit_django.dispatch.base import get_dispatcher
from turnkit_django.errors import ConfigError
from turnkit_django.store import connections

_WORKER = "turnkit_django.dispatch.Worker"
_LONGEST_REASON = 300
_LATELY = timedelta(minutes=5)


@register("turnkit")
def check_database(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """turnkit.E001: the rows are in PostgreSQL."""
    alias = connections.alias()
    if alias not in databases:
        message = f"The database router sends the app `turnkit` to {alias!r}, which DATABASES does not have."
        return [Error(message, hint=f"DATABASES has {', '.join(map(repr, databases))}.", id="turnkit.E001")]
    vendor = databases[alias].vendor
    if vendor == "postgresql":
        return []
    hint = "Set ENGINE to django.db.backends.postgresql, or route the app `turnkit` to a PostgreSQL database."
    message = f"turnkit_django needs PostgreSQL, but the database {alias!r} is {vendor}."
    return [Error(message, hint=hint, id="turnkit.E001")]


@register("turnkit")
def check_binding(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """turnkit.E004: parameters are bound by the client, so that one message may hold several statements."""
    alias, database = _database()
    if not database.get("OPTIONS", {}).get("server_side_binding"):
        return []
    message = (
        f"The database {alias!r} has the option `server_side_binding`; turnkit_django needs binding on the client, "
        "because it sends several statements in one message."
    )
    return [Error(message, hint="Remove the option: Django's default binds on the client.", id="turnkit.E004")]


@register("turnkit")
def check_isolation(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """turnkit.E005: transactions run at READ COMMITTED, where a lock is followed by a fresh look."""
    alias, database = _database()
    level = database.get("OPTIONS", {}).get("isolation_level")
    if level is None or str(getattr(level, "name", level)).replace(" ", "_").upper() in {"READ_COMMITTED", "2"}:
        return []
    message = f"The database {alias!r} has the option `isolation_level` {level!r}; turnkit_django needs READ COMMITTED."
    hint = "Remove `isolation_level` from OPTIONS: READ COMMITTED is the default."
    return [Error(message, hint=hint, id="turnkit.E005")]


@register("turnkit")
def check_autocommit(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """turnkit.E007: what is written outside a transaction is committed."""
    alias, database = _database()
    if database.get("AUTOCOMMIT", True):
        return []
    message = f"The database {alias!r} has AUTOCOMMIT False, so what turnkit_django stores is never committed."
    return [Error(message, hint="Remove it: True is Django's default.", id="turnkit.E007")]


@register("turnkit")
def check_pool(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """turnkit.W003: a connection that a worker gives back can be had again without a new handshake."""
    alias, database = _database()
    if not database or databases[alias].vendor != "postgresql" or database.get("OPTIONS", {}).get("pool"):
        return []
    message = f"The database {alias!r} has no connection pool: workers connect anew after each model call and tool."
    and_age = " and CONN_MAX_AGE to 0, which a pool needs," if database.get("CONN_MAX_AGE") else ""
    hint = f'Set "OPTIONS": {{"pool": True}}{and_age} in DATABASES[{alias!r}], or silence this behind a pooler.'
    return [Warning(message, hint=hint, id="turnkit.W003")]


@register("turnkit")
def check_atomic_requests(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """turnkit.I001: in views that are transactions `submit` works, `run` and `ask` do not."""
    alias, database = _database()
    if not database.get("ATOMIC_REQUESTS"):
        return []
    message = f"ATOMIC_REQUESTS of the database {alias!r} makes each view a transaction: `run` and `ask` refuse there."
    hint = "Use `submit` in views, or mark a view that runs turns itself with `transaction.non_atomic_requests`."
    return [Info(message, hint=hint, id="turnkit.I001")]


@register("turnkit")
def check_agents(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """turnkit.E006: an agent's name has one definition."""
    hint = "Until then the name is refused everywhere, so that nobody gets the wrong one of the two."
    return [Error(_sentence(message), hint=hint, id="turnkit.E006") for message in registry.clashes().values()]


@register("turnkit")
def check_settings(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """turnkit.E002 and E003: `TURNKIT` has only known settings, each with a value of its kind."""
    ids = {"unknown": "turnkit.E002", "value": "turnkit.E003"}
    try:
        values = conf.raw()
    except ConfigError as error:
        return [Error(f"{error}.", hint="Write TURNKIT = {…}.", id="turnkit.E003")]
    return [Error(f"{message}.", hint=_sentence(hint), id=ids[kind]) for kind, message, hint in conf.problems(values)]


def _sentence(hint: str) -> str:
    return f"{hint[0].upper()}{hint[1:]}{'' if hint.endswith(('?', '.')) else '.'}"


@register("turnkit")
def check_worker(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """turnkit.W001: a plain `rqworker` can read the wake-ups."""
    if "django_rq" not in settings.INSTALLED_APPS or not _uses_rq():
        return []
    worker = getattr(settings, "RQ", {}).get("WORKER_CLASS", "rq.Worker")
    if _is_class(worker, of=_WORKER):
        return []
    is_found = _is_class(worker, of="builtins.object")
    why = "cannot read the JSON jobs of turnkit_django" if is_found else "cannot be imported"
    message = f"`rqworker` would run {worker!r}, which {why}."
    hint = f'Set RQ = {{"WORKER_CLASS": "{_WORKER}"}}, or always start `rqworker --serializer json`.'
    return [Warning(message, hint=hint, id="turnkit.W001")]


@register("turnkit")
def check_serializer(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """turnkit.W004: django-rq's own pages and commands can read the wake-ups."""
    if not _has_queue():
        return []
    queue = str(_queue())
    serializer = settings.RQ_QUEUES[queue].get("SERIALIZER")
    if serializer == "json" or _is_class(serializer, of="rq.serializers.JSONSerializer"):
        return []
    message = f"RQ_QUEUES[{queue!r}] names no JSON serializer, so django-rq's dashboard cannot show the wake-ups."
    return [Warning(message, hint='Add "SERIALIZER": "json" to it.', id="turnkit.W004")]


@register("turnkit", deploy=True)
def check_reconcile(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """turnkit.W005: somebody runs maintenance."""
    if check_settings(None) or (_uses_rq() and not _has_queue()):
        return []
    try:
        seen = get_dispatcher().last_reconcile()
    except Exception as problem:
        message = f"Whether `turnkit_reconcile` runs cannot be seen: {conf.clean(str(problem))[:_LONGEST_REASON]}"
        hint = "Is Redis up, and is its address in RQ_QUEUES right?"
        return [Warning(_sentence(message), hint=hint, id="turnkit.W005")]
    if seen is not None and timezone.now() - seen <= _LATELY:
        return []
    last = "No run of `turnkit_reconcile` was ever seen"
    if seen is not None:
        last = f"The last run of `turnkit_reconcile` was seen at {seen:%Y-%m-%d %H:%M %Z}".rstrip()
    hint = "Run `turnkit_reconcile` every minute from cron, or `turnkit_reconcile --loop 30` as a service."
    return [Warning(f"{last}; nobody takes over the turns of dead workers.", hint=hint, id="turnkit.W005")]


@register("turnkit")
def check_queue(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """turnkit.W002: the queue for wake-ups is configured."""
    return list(_missing_queue()) if _uses_rq() else []


def _missing_queue() -> Iterator[CheckMessage]:
    queue = _queue()
    if "django_rq" not in settings.INSTALLED_APPS:
        yield Warning(
            "django_rq is not in INSTALLED_APPS, so `rqworker` is missing and nobody hears the wake-ups.",
            hint="Add it, or run `turnkit_reconcile --run` from cron, which needs no Redis.",
            id="turnkit.W002",
        )
    elif isinstance(queue, str) and not isinstance(getattr(settings, "RQ_QUEUES", {}).get(queue), dict):
        yield Warning(
            f"RQ_QUEUES has no queue {queue!r}, so no wake-up can be sent.",
            hint=f'Add RQ_QUEUES = {{"{queue}": {{"URL": "redis://…"}}}}, or name another in TURNKIT["QUEUE"].',
            id="turnkit.W002",
        )


def _database() -> tuple[str, dict[str, Any]]:
    """The alias of the database that holds the rows, and what DATABASES says of it."""
    alias = connections.alias()
    return alias, databases[alias].settings_dict if alias in databases else {}


def _has_queue() -> bool:
    return _uses_rq() and isinstance(_queue(), str) and next(_missing_queue(), None) is None


def _queue() -> object:
    return conf.raw_value("QUEUE")


def _uses_rq() -> bool:
    path = conf.raw_value("DISPATCHER")
    return isinstance(path, str) and _is_class(path, of="turnkit_django.dispatch.RQDispatcher")


def _is_class(path: object, *, of: str) -> bool:
    try:
        found = import_string(path) if isinstance(path, str) else path
    except Exception:
        return False
    return isinstance(found, type) and issubclass(found, import_string(of))
