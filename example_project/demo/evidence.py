"""The claims of the demo, each with what proves it."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

from example_project.demo.outcome import Check
from example_project.demo.story import Story
from example_project.helpdesk.models import Refund
from turnkit_django.models import ToolExecution
from turnkit_django.testing import assert_clean

_CALLED = re.compile(r"refund called by process (\d+) with key (\S+)")


def checks(story: Story, *, must_be_killed: bool) -> Iterator[Check]:
    """All that can be checked while the database is there.

    Args:
        must_be_killed: Whether the ticket was one for which the worker has to die.
    """
    turn = story.watcher.turn
    yield Check(
        "The turn completed",
        f"{turn.pk} is {turn.status}" + (f": {turn.error}" if turn.error else ""),
        holds=turn.status == turn.Status.COMPLETED,
    )
    yield from _refunds(story)
    yield from _processes(story, must_be_killed=must_be_killed)
    yield _clean(story)


def calls_of(execution: ToolExecution, story: Story) -> list[int]:
    """The processes that called the refund tool for this execution, one entry a call, from the workers' logs."""
    found = [match for worker in story.workers for match in _CALLED.finditer(worker.text())]
    return [int(match[1]) for match in found if match[2].endswith(execution.pk)]


def _refunds(story: Story) -> Iterator[Check]:
    turn = story.watcher.turn
    asked = list(turn.tool_executions.filter(tool_name="refund", status=ToolExecution.Status.COMPLETED))
    rows = Refund.objects.exclude(pk__in=story.refunds_before)
    if not asked:
        count = rows.count()
        yield Check("No refund was decided on, and none was made", f"{count} new rows in Refund", holds=count == 0)
    for execution in asked:
        count, calls = rows.filter(idempotency_key__endswith=execution.pk).count(), calls_of(execution, story)
        was_interrupted = story.killed_in is not None and story.killed_in.pk == execution.pk
        times = "once" if len(calls) == 1 else f"{len(calls)} times"
        yield Check(
            "The refund happened exactly once",
            f"{count} row in Refund with this call's key; the tool was called {times}, "
            f"by process {' and by process '.join(map(str, calls))}",
            holds=count == 1 and rows.count() == len(asked) and len(calls) >= (2 if was_interrupted else 1),
        )


def _processes(story: Story, *, must_be_killed: bool) -> Iterator[Check]:
    if story.killed is None:
        if must_be_killed:
            yield Check("A worker was killed", "the turn ended before a second tool was called", holds=False)
        return
    yield Check(
        "The first worker was killed",
        f"process {story.killed.pid} ended with code {story.kill_code} (SIGKILL is -9)",
        holds=story.kill_code == -signal.SIGKILL,
    )
    finisher = story.watcher.claims[-1]
    yield Check(
        "Another process finished",
        f"process {story.killed.pid} began, process {finisher} finished; recoveries: {story.watcher.turn.attempts}",
        holds=finisher != story.killed.pid and finisher == story.workers[-1].pid,
    )


def _clean(story: Story) -> Check:
    claim = "The database obeys every rule (assert_clean)"
    try:
        assert_clean(story.ticket.conversation)
    except AssertionError as error:
        return Check(claim, str(error), holds=False)
    return Check(claim, "one result for each call, one answer, no message missing, nothing due", holds=True)
