"""An agent whose tools end, or damage, the process they run in; each leaves a note first."""

import asyncio
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from django.db import OperationalError, connection, transaction
from django.utils import timezone

from tests.testapp.fault_agents import leave_note, wait_for_note
from tests.testapp.models import Effect
from turnkit_django import Agent, ToolContext, register, tool


class Own(BaseException):
    """Not an `Exception`, as what gevent and trio raise."""


class Exiting(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class HostileText(str):
    __slots__ = ()

    def __format__(self, spec: str) -> str:
        raise SystemExit(4)


class Mumbling(Exception):
    def __str__(self) -> str:
        return HostileText("mumbled")


RAISED: dict[str, Callable[[], BaseException]] = {
    "exit": lambda: SystemExit(0),
    "exit with words": lambda: SystemExit("x"),
    "interrupt": KeyboardInterrupt,
    "cancelled": asyncio.CancelledError,
    "generator exit": GeneratorExit,
    "stop": StopIteration,
    "own": lambda: Own("mine"),
    "group": lambda: BaseExceptionGroup("both", [SystemExit(1), KeyboardInterrupt()]),
    "memory": MemoryError,
    "exit in its text": Exiting,
    "hostile text": Mumbling,
}


def _recursion() -> None:
    _recursion()


def _close_connection() -> None:
    Effect.objects.create(name="hostile")
    connection.close()


def _terminate_connection() -> None:
    Effect.objects.create(name="hostile")
    with suppress(OperationalError), connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")


def _enter_atomic() -> None:
    transaction.atomic().__enter__()
    transaction.atomic().__enter__()
    Effect.objects.create(name="hostile")


def _switch_off_autocommit() -> None:
    transaction.set_autocommit(False)
    Effect.objects.create(name="hostile")


def _begin() -> None:
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
    Effect.objects.create(name="hostile")


def _begin_and_fail() -> None:
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
    Effect.objects.create(name="hostile", n=None)


def _change_directory() -> None:
    os.chdir(tempfile.gettempdir())


def _ignore_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _close_stdout() -> None:
    sys.stdout.close()


def _start_thread() -> None:
    threading.Thread(target=threading.Event().wait, args=(3,)).start()


def _exit_at_once() -> None:
    os._exit(0)


DEEDS: dict[str, Callable[[], None]] = {
    "recursion": _recursion,
    "close connection": _close_connection,
    "terminate connection": _terminate_connection,
    "enter atomic": _enter_atomic,
    "autocommit off": _switch_off_autocommit,
    "begin": _begin,
    "begin and fail": _begin_and_fail,
    "change directory": _change_directory,
    "ignore signals": _ignore_signals,
    "close stdout": _close_stdout,
    "start a thread": _start_thread,
    "_exit": _exit_at_once,
}


def _do(how: str, key: str) -> str:
    leave_note(how, key=key)
    if how in RAISED:
        raise RAISED[how]()
    DEEDS[how]()
    return "done"


@tool
def misbehave(how: str, *, context: ToolContext) -> str:
    """Do something that no tool should."""
    return _do(how, context.idempotency_key)


@tool(recovery="replay_safe")
def misbehave_again(how: str, *, context: ToolContext) -> str:
    """The same, and it may be repeated."""
    return _do(how, context.idempotency_key)


@tool
async def misbehave_later(how: str) -> None:
    """Raise out of a coroutine."""
    await asyncio.sleep(0)
    raise RAISED[how]()


@tool
def swallow(gate: str = "", *, context: ToolContext) -> str:
    """Go on, whatever is raised here, until the note is there; without one, until the turn is overdue."""
    leave_note("swallowing", key=context.idempotency_key)
    is_over = False
    while not is_over:
        try:
            if gate:
                wait_for_note(gate)
            threading.Event().wait(0.02)
            is_over = bool(gate) or timezone.now() > context.turn.deadline_at
        except BaseException:
            leave_note("swallowed")
    Effect.objects.create(name="swallow", key=context.idempotency_key)
    return "went on"


TOOLS = [misbehave, misbehave_again, misbehave_later, swallow]
hostile = register(Agent(name="hostile", model="openai/gpt-5-mini", instructions="Misbehave.", tools=TOOLS))
hurried = register(Agent(name="hurried", model="openai/gpt-5-mini", tools=TOOLS, timeout=timedelta(seconds=6)))
