"""B32: a turn that kills every worker that takes it."""

import pytest
from django.test import override_settings

from tests.faults.processes import CRASHED, Process, Processes
from tests.faults.rescue import has_ended, maintained_until, with_settings
from tests.testapp.fault_agents import fragile
from tests.testapp.models import Note
from turnkit_django.models import Turn
from turnkit_django.testing import assert_clean, call, model_server, text

pytestmark = [pytest.mark.kill, pytest.mark.timeout(150)]

MOST_RECOVERIES = 2


class Workers:
    """One worker at a time, as a supervisor keeps it: a dead one is replaced."""

    def __init__(self, processes: Processes, *, most: int) -> None:
        self._processes = processes
        self._most = most
        self.all: list[Process] = []

    def keep_alive(self) -> None:
        if not self.all or not self.all[-1].is_alive:
            assert len(self.all) < self._most, self._processes.logs
            settings = with_settings(LEASE_SECONDS=1, MAX_RECOVERIES=MOST_RECOVERIES)
            self.all.append(self._processes.worker(**settings))

    @property
    def died(self) -> list[Process]:
        return [worker for worker in self.all if not worker.is_alive]


def dangerous(request):
    last = request.messages[-1]
    if last["role"] == "user" and last["content"] == "explode":
        return call("boom")
    return text("all is well")


def test_a_turn_that_kills_its_workers_stops_and_the_others_go_on(processes, model_port):
    workers = Workers(processes, most=MOST_RECOVERIES + 3)
    deadly = fragile.conversation().submit("explode")
    others = [fragile.conversation().submit(f"be well {number}") for number in range(3)]

    def is_over() -> bool:
        workers.keep_alive()
        return all(has_ended(turn) for turn in (deadly, *others))

    limit = override_settings(TURNKIT={"MAX_RECOVERIES": MOST_RECOVERIES})
    with model_server(dangerous, port=model_port) as model, limit:
        maintained_until(is_over, lambda: processes.logs, seconds=90)
        check_failure(deadly, workers.died)
        assert {turn.status for turn in others} == {"completed"}
        assert {turn.attempts for turn in others} == {0}
        later = deadly.conversation.submit("are you there?")
        maintained_until(lambda: has_ended(later), lambda: processes.logs)
        assert (later.status, later.output_text) == ("completed", "all is well")
        assert model.violations == []
    assert_clean()


def check_failure(turn: Turn, died: list[Process]) -> None:
    deaths = MOST_RECOVERIES + 1
    assert [worker.ended() for worker in died] == [CRASHED] * deaths
    assert (turn.status, turn.attempts) == ("failed", deaths)
    assert turn.error["type"] == "WorkerDied"
    assert turn.error["details"] == {"attempts": deaths}
    assert f"{deaths} workers died" in turn.error["message"]
    execution = turn.tool_executions.get()
    assert execution.status == "interrupted"
    boom = list(Note.objects.filter(name="boom").values_list("key", flat=True))
    assert boom == [f"turnkit:tool:{execution.pk}"] * deaths
    assert Turn.objects.filter(pk=turn.pk, claim_token=None, not_before=None).exists()
