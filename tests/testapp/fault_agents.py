"""An agent whose tools leave notes of every run, wait on demand, kill their process, or quote secrets."""

import os
import signal
import threading
import time

from django.db import connection

from tests.testapp.models import Effect, Note
from turnkit_django import Agent, ToolContext, register, tool


def leave_note(name: str, *, key: str = "") -> None:
    """Note who runs here, and on which connection to PostgreSQL."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        backend = cursor.fetchone()[0]
    Note.objects.create(name=name, key=key, pid=os.getpid(), backend=backend)


def wait_for_note(name: str, *, seconds: float = 50) -> None:
    """Block until somebody leaves that note, as a slow service would."""
    end = time.monotonic() + seconds
    while not Note.objects.filter(name=name).exists():
        assert time.monotonic() < end, f"nobody left the note {name!r}"
        threading.Event().wait(0.02)


def _charge(name: str, key: str, n: int, gate: str) -> dict[str, object]:
    leave_note("ran", key=key)
    if name == "charge_safe":
        Effect.objects.get_or_create(key=key, defaults={"name": name, "n": n})
    else:
        Effect.objects.create(key=key, name=name, n=n)
    if gate:
        wait_for_note(gate)
    return {"charged": n}


@tool(recovery="replay_safe")
def charge_safe(n: int = 0, gate: str = "", *, context: ToolContext) -> dict[str, object]:
    """Charge once for each key; may be repeated."""
    return _charge("charge_safe", context.idempotency_key, n, gate)


@tool
def charge_unknown(n: int = 0, gate: str = "", *, context: ToolContext) -> dict[str, object]:
    """Charge each time."""
    return _charge("charge_unknown", context.idempotency_key, n, gate)


@tool
def charge_and_listen(path: str, *, context: ToolContext) -> dict[str, object]:
    """Charge, then wait for a file to appear, with a connection to the database left open."""
    leave_note("ran", key=context.idempotency_key)
    end = time.monotonic() + 50
    while not os.path.exists(path):
        assert time.monotonic() < end, f"nobody made {path}"
        threading.Event().wait(0.02)
    return {"charged": 1}


@tool
def charge_and_compute(seconds: float, *, context: ToolContext) -> dict[str, object]:
    """Charge, then compute in pure Python, without a pause for other threads."""
    leave_note("ran", key=context.idempotency_key)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return {"charged": 1}


@tool(recovery="replay_safe")
def boom(*, context: ToolContext) -> None:
    """Kill the process, as running out of memory would."""
    leave_note("boom", key=context.idempotency_key)
    os.kill(os.getpid(), signal.SIGKILL)


@tool
def leak() -> None:
    """Fail with a password in the message."""
    raise RuntimeError(f"cannot log in with {os.environ['DB_PASSWORD_TEST']!r} at the bank")


fragile = register(
    Agent(
        name="fragile",
        model="openai/gpt-5-mini",
        instructions="Charge.",
        tools=[charge_safe, charge_unknown, charge_and_listen, charge_and_compute, boom, leak],
    )
)
