"""The story: a ticket, a worker that dies at the worst moment, another one that finishes."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from django.conf import settings

from example_project.demo.outcome import DemoError
from example_project.demo.processes import CRASH_VARIABLE, Process, Processes
from example_project.demo.terminal import Terminal
from example_project.demo.watching import Watcher, now, pid_of
from example_project.helpdesk.models import Customer, Order, Refund, Ticket
from example_project.helpdesk.seed import ADA
from example_project.helpdesk.tickets import open_ticket
from turnkit_django.models import ToolExecution

TICKET = "Hello! The {item} of order {number} arrived broken. I would like my money back, please."

# The second tool that returns is `refund`, after `lookup_order`.
_CRASH_AT = "tool_returned:2:block"
_BLOCKED = f"{CRASH_VARIABLE}: blocked"
_TURN_SECONDS = 90.0


@dataclass
class Story:
    """What happened.

    Attributes:
        watcher: What was seen of the turn.
        refunds_before: The rows of Refund that were there already.
        killed: The worker that was killed, or None if the turn ended before it could be.
        killed_in: The tool whose result was never stored by that worker.
        kill_code: What the operating system says of its end: -9 is SIGKILL.
    """

    ticket: Ticket
    watcher: Watcher
    refunds_before: frozenset[int]
    workers: list[Process] = field(default_factory=list)
    killed: Process | None = None
    killed_in: ToolExecution | None = None
    kill_code: int | None = None


def tell(terminal: Terminal, processes: Processes, text: str) -> Story:
    """Play it.

    Raises:
        DemoError: Something did not come to pass.
    """
    first = _worker(processes, "first worker", environment={CRASH_VARIABLE: _CRASH_AT})
    reconcile = processes.manage("reconcile loop", "turnkit_reconcile", "--loop", "1")
    terminal.say(f"started the first worker: `manage.py rqworker turnkit`, process {first.pid}")
    terminal.say(
        f"started `manage.py turnkit_reconcile --loop 1`, which looks for dead workers, process {reconcile.pid}"
    )
    terminal.say(
        f"On purpose: the first worker was told ({CRASH_VARIABLE}={_CRASH_AT}) to stop dead as soon as its second tool "
        "has done its work, before it can store the tool's result. Then it will be killed.",
        style="loud",
    )
    before = frozenset(Refund.objects.values_list("pk", flat=True))
    ticket, turn = open_ticket(Customer.objects.get(email=ADA), text)
    story = Story(ticket, Watcher(turn, terminal.say), before, [first])
    story.watcher.note(turn.submitted_at, "help desk", f"submits {turn.pk}, in the transaction that stores the ticket")
    processes.wait_until(
        "the worker stops or the turn ends",
        lambda: story.watcher.look().turn.is_terminal or first.said(_BLOCKED),
        seconds=_TURN_SECONDS,
    )
    story.watcher.look()
    if not story.watcher.turn.is_terminal:
        story.workers.append(_worker(processes, "second worker"))
        _kill(story, first)
        terminal.say(
            f"started the second worker, process {story.workers[-1].pid}; nobody renews the claim of the dead one: "
            f"it ends in {settings.TURNKIT['LEASE_SECONDS']} seconds at the latest"
        )
    _wait_for_the_end(processes, story.watcher)
    return story


def complaint() -> str:
    """The usual ticket, about an order that nothing was refunded of yet."""
    order = Order.objects.filter(customer__email=ADA, refunds=None).order_by("number").first()
    if order is None:  # only in a database of which earlier demos have left their rows
        last = Order.objects.filter(customer__email=ADA).latest("number")
        number = Order.objects.latest("number").number + 1
        order = Order.objects.create(number=number, customer=last.customer, item=last.item, total=last.total)
    return TICKET.format(item=order.item, number=order.number)


def replace_blocked_worker(processes: Processes, story: Story) -> None:
    """Make sure that a worker is left which does not stop dead."""
    if len(story.workers) == 1:
        # Nothing stopped the first worker so far: the next tool would.
        story.workers[0].kill()
        story.workers.append(_worker(processes, "second worker"))


def _worker(processes: Processes, name: str, *, environment: dict[str, str] | None = None) -> Process:
    return processes.manage(name, "rqworker", "turnkit", environment=environment)


def _kill(story: Story, worker: Process) -> None:
    """End the process that the claim names, when its tool has taken effect and nobody knows yet."""
    turn = story.watcher.turn
    named = turn.claimed_by or ""
    if not named.startswith(f"{socket.gethostname()}:") or pid_of(named) != worker.pid:
        raise DemoError(f"{turn.pk} is claimed by {named!r}, which is not the first worker (process {worker.pid})")
    story.killed, story.killed_in = worker, story.watcher.running_tool()
    if story.killed_in is not None:
        story.watcher.note(now(), story.watcher.worker, _worst_moment(story.killed_in))
    story.kill_code = worker.kill()
    story.watcher.note(now(), "demo", f"kills process {worker.pid}, which the claim names, with SIGKILL")


def _worst_moment(execution: ToolExecution) -> str:
    rows = Refund.objects.filter(idempotency_key__endswith=execution.pk).count()
    did = f"the money is sent ({rows} row in Refund)" if rows else "its work is done"
    return f"stops dead at the worst moment: {execution.tool_name} has returned, {did}, and its result is not stored"


def _wait_for_the_end(processes: Processes, watcher: Watcher) -> None:
    processes.wait_until(f"{watcher.turn.pk} ends", lambda: watcher.look().turn.is_terminal, seconds=_TURN_SECONDS)
    watcher.look()
    turn = watcher.turn
    watcher.note(turn.completed_at, "turn", f"{turn.status}")
