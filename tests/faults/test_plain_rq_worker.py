"""RQ's own worker, which forks for every job, as a project may already run it."""

import pytest

from tests.faults.processes import failed_jobs, queued
from tests.faults.rescue import Script, has_ended
from tests.testapp.fault_agents import fragile
from tests.testapp.models import Effect
from turnkit_django.testing import assert_clean, model_server

pytestmark = pytest.mark.timeout(120)


def test_a_plain_worker_that_reads_json_completes_a_turn(processes, model_port):
    turn = fragile.conversation().submit("charge me")
    script = Script("charge_unknown")
    with model_server(script, port=model_port) as model:
        worker = processes.worker("--worker-class", "rq.Worker", "--serializer", "json", "--burst")
        assert worker.ended() == 0, worker.log

    assert has_ended(turn), worker.log
    assert worker.pid not in script.pids  # its child asked
    assert (turn.status, turn.output_text, turn.attempts) == ("completed", "charged it", 0)
    assert (len(model.requests), Effect.objects.count()) == (2, 1)
    assert (queued(), failed_jobs()) == ([], [])
    assert "Traceback" not in worker.log
    assert_clean()
