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
    with model_server(Script("charge_unknown"), port=model_port) as model:
        options = ("--worker-class", "rq.Worker", "--serializer", "json", "--burst")
        said = processes.run("rqworker", "turnkit", *options)

    assert has_ended(turn), said
    assert (turn.status, turn.output_text, turn.attempts) == ("completed", "charged it", 0)
    assert (len(model.requests), Effect.objects.count()) == (2, 1)
    assert (queued(), failed_jobs()) == ([], [])
    assert "Traceback" not in said
    assert_clean()
