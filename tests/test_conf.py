"""The settings: defaults, and what is said about a wrong one."""

from typing import Any

import pytest
from django.test import override_settings

from turnkit_django import conf
from turnkit_django.errors import ConfigError

SECRET = "hunter2-hunter2"


def told(**values: Any) -> list[tuple[str, str, str]]:
    return list(conf.problems(values))


def test_without_a_setting_the_defaults_hold():
    with override_settings():
        from django.conf import settings

        if hasattr(settings, "TURNKIT"):
            del settings.TURNKIT
        conf.get.cache_clear()
        assert conf.get() == conf.Settings()
    conf.get.cache_clear()


def test_a_setting_is_read_again_when_a_test_overrides_it():
    with override_settings(TURNKIT={"LEASE_SECONDS": 3}):
        assert conf.get().LEASE_SECONDS == 3
    assert conf.get().LEASE_SECONDS == conf.Settings().LEASE_SECONDS


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("LEASE_SECOND", "did you mean 'LEASE_SECONDS'?"),
        ("lease_seconds", "did you mean 'LEASE_SECONDS'?"),
        ("zzz", "known settings: CLIENT, COST_RATES, "),
        (5, "known settings: CLIENT, COST_RATES, "),
    ],
)
def test_an_unknown_setting_is_named_with_the_nearest_known_one(name: Any, hint: str):
    [(kind, message, advice)] = conf.problems({name: 1})
    assert (kind, message) == ("unknown", f"unknown setting TURNKIT[{name!r}]")
    assert advice.startswith(hint)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("LEASE_SECONDS", "60", "expected int, got '60' (str)"),
        ("LEASE_SECONDS", 1.5, "expected int, got 1.5 (float)"),
        ("LEASE_SECONDS", True, "expected int, got True (bool)"),
        ("LEASE_SECONDS", 0, "expected a positive number, got 0"),
        ("MODEL_RETRIES", -1, "got -1"),
        ("TIMEOUT", "5", "expected int or None, got '5' (str)"),
        ("QUEUE", None, "expected str, got None (NoneType)"),
        ("CLIENT", "no.such.Client", "expected the dotted path of a class, got 'no.such.Client': No module named 'no'"),
        ("CLIENT", "client", "expected the dotted path of a class, got 'client'"),
        ("CLIENT", "turnkit_django.errors", "expected the dotted path of a class, got 'turnkit_django.errors'"),
        ("DISPATCHER", "turnkit_django.dispatch.Nobody", "expected the dotted path of a class"),
        ("COST_RATES", [], "expected mapping, got [] (list)"),
        ("COST_RATES", {"m": {"INPUT": 1}}, "expected for 'm' a dict with keys out of cache_read, cache_write, input"),
        ("COST_RATES", {"m": 5}, "expected for 'm' a dict"),
        ("REQUEST_FORMS", {"m": {"length": 9}}, "keys out of call_id_length, empty_content"),
    ],
)
def test_a_wrong_value_is_told_with_what_was_expected_and_what_came(name: str, value: Any, message: str):
    [(kind, said, hint)] = told(**{name: value})
    assert (kind, said.startswith(f"TURNKIT[{name!r}]: "), bool(hint)) == ("value", True, True)
    assert message in said


@pytest.mark.parametrize(
    "values",
    [
        {"MAX_RECOVERIES": 0, "MODEL_RETRIES": 0, "MAX_ITERATIONS": 0, "TIMEOUT": None},
        {"CLIENT": "turnkit_django.clients.LiteLLMClient", "DISPATCHER": "turnkit_django.dispatch.RQDispatcher"},
        {"COST_RATES": {"m": {"input": 1, "thinking": "0.5"}}, "REQUEST_FORMS": {"m*": {"call_id_length": 9}}},
    ],
)
def test_right_values_are_taken(values: dict[str, Any]):
    assert told(**values) == []
    with override_settings(TURNKIT=values):
        assert {name: getattr(conf.get(), name) for name in values} == values


def test_the_first_problem_is_raised_where_settings_are_used():
    with override_settings(TURNKIT={"LEASE_SECOND": 1}), pytest.raises(ConfigError) as caught:
        conf.get()
    assert str(caught.value) == "unknown setting TURNKIT['LEASE_SECOND']; did you mean 'LEASE_SECONDS'?"


def test_the_setting_itself_must_be_a_dict():
    with override_settings(TURNKIT=["LEASE_SECONDS"]), pytest.raises(ConfigError, match="to be a dict, got list"):
        conf.get()


def test_secrets_that_this_process_knows_are_cleaned_by_value(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DB_PASSWORD_TEST", SECRET)
    with override_settings(SECRET_KEY="a-very-secret-key"):
        assert conf.clean(f"login {SECRET} with a-very-secret-key") == "login [redacted] with [redacted]"
