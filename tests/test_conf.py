"""The settings: defaults, and what is said about a wrong one."""

from decimal import Decimal
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


async def nobody_awaits(event: object) -> None:
    """What `ON_EVENT` cannot be."""


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
        ("ON_EVENT", 5, "expected str or None, got 5 (int)"),
        ("ON_EVENT", "no.such.receiver", "expected the dotted path of a callable, got 'no.such.receiver': No module"),
        ("ON_EVENT", "turnkit_django.conf.Settings", "dotted path of a function or another callable of one event, got"),
        ("ON_EVENT", f"{__name__}.nobody_awaits", "dotted path of a plain function, since nobody would await an async"),
        ("COST_RATES", [], "expected mapping, got [] (list)"),
        ("COST_RATES", {"m": {"INPUT": 1}}, "expected for 'm' a dict with keys out of cache_read, cache_write, input"),
        ("COST_RATES", {"m": 5}, "expected for 'm' a dict"),
        ("REQUEST_FORMS", {"m": {"length": 9}}, "keys out of call_id_length, empty_content"),
        ("REQUEST_FORMS", {5: {}}, "expected the name of a model, got 5"),
        ("REQUEST_FORMS", {"m": {"call_id_length": "9"}}, "for 'm': expected `call_id_length` from 6 to 40, got '9'"),
        ("REQUEST_FORMS", {"m": {"call_id_length": 41}}, "for 'm': expected `call_id_length` from 6 to 40, got 41"),
        ("REQUEST_FORMS", {"m": {"empty_content": "no"}}, "expected `empty_content` in null, absent, empty, got 'no'"),
        ("COST_RATES", {"m": {"input": "2,50"}}, "for 'm': expected `input` to be US dollars per million tokens"),
        ("COST_RATES", {"m": {"input": -1}}, "got -1"),
        ("COST_RATES", {"m": {"output": float("nan")}}, "got nan"),
        ("COST_RATES", {"m": {"output": "1e30"}}, "got '1e30'"),
        ("COST_RATES", {"m": {"output": True}}, "got True"),
        ("COST_RATES", {"m": {"thinking": None}}, "got None"),
        ("LEASE_SECONDS", 10**12, "expected at most 2147483 seconds, got 1000000000000"),
        # In a list, because pytest cannot print the number itself.
        ("LEASE_SECONDS", [10**5000], "expected int, got a list that cannot be printed (list)"),
        ("MODEL_TIMEOUT", 10**12, "expected at most 2147483 seconds"),
        ("TIMEOUT", 2**31, "expected at most 2147483647"),
        ("MAX_OUTPUT_TOKENS", 2**40, "expected at most 2147483647"),
        ("QUEUE", " ", "expected text that is not empty, got ' '"),
        ("DEFAULT_MODEL", "a\x00", "without NUL and lone surrogates, got 'a\\x00'"),
    ],
)
def test_a_wrong_value_is_told_with_what_was_expected_and_what_came(name: str, value: Any, message: str):
    [(kind, said, hint)] = told(**{name: value})
    assert (kind, said.startswith(f"TURNKIT[{name!r}]: "), bool(hint)) == ("value", True, True)
    assert message in said


def test_a_number_that_python_does_not_print_is_told_by_its_size():
    [(_, said, _hint)] = told(LEASE_SECONDS=10**5000)
    assert said == "TURNKIT['LEASE_SECONDS']: expected at most 2147483 seconds, got an int of 16610 bits"


@pytest.mark.parametrize(
    "values",
    [
        {"MAX_RECOVERIES": 0, "MODEL_RETRIES": 0, "MAX_ITERATIONS": 0, "TIMEOUT": None},
        {"CLIENT": "turnkit_django.clients.LiteLLMClient", "DISPATCHER": "turnkit_django.dispatch.RQDispatcher"},
        {"ON_EVENT": None},
        {"ON_EVENT": "builtins.print"},
        {"COST_RATES": {"m": {"input": 1, "thinking": "0.5"}}, "REQUEST_FORMS": {"m*": {"call_id_length": 9}}},
        {"COST_RATES": {"m": {"input": 0.5, "output": Decimal("2.5")}, "free": {}}},
        {"REQUEST_FORMS": {"m": {"call_id_length": None, "empty_content": "empty"}}},
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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SECRET_KEY", SECRET),
        ("SECRET_KEY_FALLBACKS", ["first-old-key", SECRET]),
        ("PAYMENT_PASSWORD", SECRET),
        ("STRIPE_SECRET_KEY", SECRET),
        ("STRIPE_SECRET_KEY", SECRET.encode()),
        ("API_CREDENTIALS", {"stripe": {"live": SECRET}}),
        ("RQ_QUEUES", {"turnkit": {"HOST": "cache", "PASSWORD": SECRET}}),
        ("RQ_QUEUES", {"turnkit": {"URL": f"redis://:{SECRET}@cache:6379/0"}}),
        ("CACHES", {"default": {"LOCATION": ["redis://one/0", f"redis://anna:{SECRET}@two/0"]}}),
        ("CACHES", {"default": {"OPTIONS": {"PASSWORD": SECRET}}}),
        ("BROKER", f"amqp://anna:{SECRET}@broker//"),
        ("BROKER", "amqp://anna:hunter2%2Dhunter2@broker//"),
        ("TURNKIT_EXTRA", ({"api_key": SECRET},)),
    ],
    ids=lambda _: "",  # pytest puts the name of a test into the environment
)
def test_settings_that_look_secret_are_cleaned_by_value(name: str, value: Any):
    with override_settings(**{name: value}):
        assert conf.clean(f"login {SECRET} failed") == "login [redacted] failed"
    assert SECRET in conf.clean(f"login {SECRET} failed")


def test_the_passwords_of_databases_are_cleaned_by_value(monkeypatch: pytest.MonkeyPatch):
    from django.conf import settings

    monkeypatch.setattr(settings, "DATABASES", {"default": {"PASSWORD": SECRET, "NAME": "turnkit-name"}})
    conf.forget_secrets()
    assert conf.clean(f"{SECRET} turnkit-name") == "[redacted] turnkit-name"
    monkeypatch.undo()
    conf.forget_secrets()


def test_a_url_of_the_environment_gives_its_password_away(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REDIS_URL", f"redis://:{SECRET}@cache/0")
    assert conf.clean(f"login {SECRET} at cache") == "login [redacted] at cache"


def test_words_of_harmless_settings_stay():
    from django.conf import settings

    words = " ".join([*settings.PASSWORD_HASHERS, *settings.INSTALLED_APPS, settings.CSRF_COOKIE_NAME])
    with override_settings(
        CACHES={"default": {"KEY_PREFIX": "ordinary", "LOCATION": "redis://cache-host/0"}},
        RQ_QUEUES={"token_refresh": {"HOST": "ordinary-host"}},
        STRIPE_KEY=None,
    ):
        assert conf.clean(f"{words} ordinary cache-host ordinary-host") == f"{words} ordinary cache-host ordinary-host"


def test_the_settings_are_walked_once():
    with override_settings(STRIPE_SECRET_KEY=SECRET):
        conf.clean("")
        before = conf.known_secrets.cache_info().misses
        conf.clean("")
        assert conf.known_secrets.cache_info().misses == before


def test_a_traceback_is_cleaned():
    try:
        raise ValueError("redis://:hunter2@cache/0")
    except ValueError as problem:
        told = conf.clean_traceback(problem)
    assert told.startswith("Traceback (most recent call last):")
    assert told.endswith("ValueError: redis://[redacted]@cache/0")
