"""`crash_at`, and the variable that arms it in other processes."""

import os
import subprocess
import sys

import pytest

from turnkit_django import failpoints
from turnkit_django.errors import ConfigError
from turnkit_django.testing import Crash, crash_at


def test_a_point_is_passed_until_the_nth_time():
    with crash_at("claimed", nth=3):
        failpoints.reach("claimed")
        failpoints.reach("reserved")
        failpoints.reach("claimed")
        with pytest.raises(Crash, match="crash at claimed"):
            failpoints.reach("claimed")
        failpoints.reach("claimed")


def test_nothing_is_armed_afterwards():
    with crash_at("claimed"):
        pass
    failpoints.reach("claimed")


def test_no_handler_of_exceptions_catches_a_crash():
    assert not issubclass(Crash, Exception)


@pytest.mark.parametrize("point", failpoints.PUBLIC_POINTS)
def test_every_public_point_can_be_armed(point: str):
    with crash_at(point), pytest.raises(Crash):
        failpoints.reach(point)


@pytest.mark.parametrize("point", ["claim_due.before", "complete.written", "settle_tool.committed"])
def test_points_inside_a_transition_can_be_armed(point: str):
    with crash_at(point), pytest.raises(Crash):
        failpoints.reach(point)


@pytest.mark.parametrize(
    ("point", "nth", "message"),
    [
        ("clamed", 1, "unknown crash point 'clamed'; expected one of submitted, claimed"),
        (".before", 1, "unknown crash point"),
        ("claim.during", 1, "unknown crash point"),
        ("", 1, "unknown crash point"),
        ("claimed", 0, "expected `nth` from 1, got 0"),
    ],
)
def test_a_wrong_point_is_refused(point: str, nth: int, message: str):
    with pytest.raises(ConfigError, match=message), crash_at(point, nth=nth):
        pass


def run(code: str, *, armed: str) -> subprocess.CompletedProcess[str]:
    code = f"from turnkit_django import failpoints, testing\n{code}"
    environment = {**os.environ, "TURNKIT_CRASH_AT": armed}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=30)


REACH = "failpoints.reach('claimed'); print('alive')"


@pytest.mark.parametrize("armed", ["claimed", "claimed:1", "claimed:1:kill"])
def test_the_variable_kills_a_process(armed: str):
    ended = run(REACH, armed=armed)
    assert (ended.returncode, ended.stdout) == (-9, "")


def test_a_process_can_be_killed_from_inside():
    ended = run("with testing.crash_at('claimed', hard=True): failpoints.reach('claimed')", armed="")
    assert ended.returncode == -9


@pytest.mark.parametrize(("armed", "alive"), [("claimed:1:raise", False), ("claimed:2:raise", True), ("", True)])
def test_the_variable_may_ask_for_an_exception(armed: str, alive: bool):
    ended = run(REACH, armed=armed)
    assert (ended.returncode, "alive" in ended.stdout, "Crash: crash at claimed" in ended.stderr) == (
        (0, True, False) if alive else (1, False, True)
    )


def test_a_blocked_process_says_so_and_waits_to_be_killed():
    environment = {**os.environ, "TURNKIT_CRASH_AT": "claimed:1:block"}
    code = f"from turnkit_django import failpoints, testing\n{REACH}"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout.readline() == "TURNKIT_CRASH_AT: blocked at claimed, waiting to be killed\n"
        process.kill()
        assert process.communicate(timeout=20)[0] == ""


def test_the_variable_is_honoured_only_where_the_kit_was_imported():
    code = "from turnkit_django import failpoints; failpoints.reach('claimed'); print('alive')"
    environment = {**os.environ, "TURNKIT_CRASH_AT": "claimed"}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert ended.stdout == "alive\n"


@pytest.mark.parametrize("armed", ["clamed", "claimed:0", "claimed:x", "claimed:1:explode", "claimed:-1"])
def test_a_variable_that_cannot_be_read_is_refused(armed: str):
    ended = run(REACH, armed=armed)
    assert (ended.returncode, "ConfigError" in ended.stderr, ended.stdout) == (1, True, "")
