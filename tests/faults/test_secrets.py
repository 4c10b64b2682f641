"""B55: keys and passwords that errors quote are in no row, no log line and no byte of Redis."""

import json
import logging

import pytest
from django.apps import apps

from tests.faults.processes import all_bytes
from tests.faults.rescue import has_ended
from tests.testapp.fault_agents import fragile
from tests.waiting import wait_until
from turnkit_django.testing import assert_clean, call, model_server, text

pytestmark = pytest.mark.timeout(120)

KEY = "sk-test-THISISSECRET123456"
GOOGLE = "AIzaTESTSECRET0000000000000000000000000"
BEARER = "tok_SECRETSECRETSECRET"
ODD = "correct horse battery staple"  # no pattern knows it: only the variable's name says what it is
PASSWORD = "hunter2-hunter2"
QUOTED = f"Incorrect API key provided: {KEY}. url: https://host/v1?key={GOOGLE} Authorization: Bearer {BEARER} ({ODD})"
SECRETS = (KEY, GOOGLE, BEARER, ODD, PASSWORD)


def everything_stored() -> str:
    rows = [str(row) for model in apps.get_app_config("turnkit").get_models() for row in model.objects.values()]
    assert rows
    return "\n".join([*rows, all_bytes().decode(errors="replace")])


def leaks(*texts: str) -> list[str]:
    return [secret for secret in SECRETS if any(secret in text for text in texts)]


def refusing(request):
    last = request.messages[-1]["content"]
    if "permanent" in last:
        return {"error": {"status": 401, "message": QUOTED}}
    if "passing" in last and not refusing.passed:
        refusing.passed = True
        return {"error": {"status": 503, "message": QUOTED, "retry_after": 600}}
    if "200" in last:
        return {"error": {"message": QUOTED}}
    return text("done") if request.messages[-1]["role"] == "tool" else call("leak")


refusing.passed = False


@pytest.mark.parametrize("client", ["litellm", "quick"])
def test_no_secret_of_an_error_is_kept(processes, model_port, client):
    refusing.passed = False
    environment = {"DB_PASSWORD_TEST": PASSWORD, "SOME_API_KEY": ODD, "OPENAI_API_KEY": KEY}
    if client == "litellm":
        environment["TURNKIT_TEST_SETTINGS"] = json.dumps({"LEASE_SECONDS": 60})
    with model_server(refusing, port=model_port):
        worker = processes.worker(**environment)
        permanent = fragile.conversation().submit("a permanent error")
        passing = fragile.conversation().submit("a passing error")
        inside = fragile.conversation().submit("an error in a 200")
        tool = fragile.conversation().submit("use the tool")
        wait_until(lambda: all(has_ended(turn) for turn in (permanent, tool)), lambda: worker.log)

        def is_told(turn) -> bool:
            turn.refresh_from_db()
            return turn.error is not None

        wait_until(lambda: is_told(passing) and is_told(inside), lambda: worker.log)
    worker.end()
    assert leaks(everything_stored()) == []
    assert leaks(worker.log) == []
    assert permanent.status == "failed"
    assert permanent.error["details"]["status_code"] == 401
    assert "Incorrect API key provided" in permanent.error["message"]
    assert passing.status == "waiting"
    check_tool(tool)
    passing.cancel()
    inside.cancel()
    assert_clean()


def check_tool(turn) -> None:
    assert turn.status == "completed"
    execution = turn.tool_executions.get()
    assert (execution.status, execution.error["type"]) == ("failed", "RuntimeError")
    assert "cannot log in with" in execution.error["message"]
    assert "at the bank" in execution.error["message"]
    (told,) = turn.messages.filter(role="tool")
    assert "Traceback" not in told.text
    assert "File " not in told.text


@pytest.mark.django_db(transaction=True)
def test_no_secret_of_an_inline_error_is_kept(turnkit_model, monkeypatch, caplog):
    for name, value in {"DB_PASSWORD_TEST": PASSWORD, "SOME_API_KEY": ODD}.items():
        monkeypatch.setenv(name, value)
    turnkit_model([{"error": {"status": 401, "message": QUOTED}}, call("leak"), text("done")])
    with caplog.at_level(logging.DEBUG):
        failed = fragile.conversation().ask("a permanent error")
        fragile.conversation().ask("use the tool")
    assert failed.status == "failed"
    told = [record.getMessage() for record in caplog.records if record.name.startswith("turnkit")]
    formatted = [logging.Formatter().format(record) for record in caplog.records if record.name == "turnkit"]
    assert leaks(everything_stored(), *told, *formatted) == []
