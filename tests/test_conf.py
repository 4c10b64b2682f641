"""The settings: defaults, and what is said about a wrong one."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from django.test import override_settings

from turnkit_django import conf
from turnkit_django.clients import LiteLLMClient
from turnkit_django.dispatch import RQDispatcher
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


def takes_two(event: object, other: object) -> None:
    """What `ON_EVENT` cannot be either."""


A_CLASS = "expected the dotted path of a class, got"


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
        ("LEASE_SECONDS", "60", "expected a whole number, got '60' (str)"),
        ("LEASE_SECONDS", 1.5, "expected a whole number, got 1.5 (float)"),
        ("LEASE_SECONDS", True, "expected a whole number, got True (bool)"),
        ("LEASE_SECONDS", 0, "expected a whole number of at least 1, got 0"),
        ("TIMEOUT", 0, "expected a whole number of at least 1, got 0"),
        ("MODEL_RETRIES", -1, "expected a whole number of at least 0, got -1"),
        ("MAX_RECOVERIES", -1, "expected a whole number of at least 0, got -1"),
        ("MAX_ITERATIONS", -1, "expected a whole number of at least 0, got -1"),
        ("TIMEOUT", "5", "expected a whole number or None, got '5' (str)"),
        ("QUEUE", None, "expected a text, got None (NoneType)"),
        ("CLIENT", "no.such.Client", f"{A_CLASS} 'no.such.Client': No module named 'no'"),
        ("CLIENT", "client", f"{A_CLASS} 'client'"),
        ("CLIENT", "turnkit_django.errors", f"{A_CLASS} 'turnkit_django.errors', which is a module and cannot be"),
        ("CLIENT", f"{__name__}.takes_two", f"{A_CLASS} '{__name__}.takes_two', which is a function"),
        ("CLIENT", LiteLLMClient, "; give its dotted path as a text: 'turnkit_django.clients.litellm.LiteLLMClient'"),
        ("DISPATCHER", "turnkit_django.dispatch.Nobody", A_CLASS),
        ("DISPATCHER", RQDispatcher, "; give its dotted path as a text: 'turnkit_django.dispatch.rq.RQDispatcher'"),
        ("ON_EVENT", 5, "expected a text or None, got 5 (int)"),
        ("ON_EVENT", takes_two, f"; give its dotted path as a text: '{__name__}.takes_two'"),
        ("ON_EVENT", "turnkit_django.errors", "'turnkit_django.errors', which is a module and cannot be called"),
        ("ON_EVENT", f"{__name__}.SECRET", f"'{__name__}.SECRET', which is an object of type str and cannot be called"),
        ("ON_EVENT", f"{__name__}.takes_two", "of a callable that can be called with one event alone, got"),
        ("ON_EVENT", "no.such.receiver", "expected the dotted path of a callable, got 'no.such.receiver': No module"),
        ("ON_EVENT", "turnkit_django.conf.Settings", "dotted path of a function or another callable of one event, got"),
        ("ON_EVENT", f"{__name__}.nobody_awaits", "dotted path of a plain function, since nobody would await an async"),
        ("COST_RATES", [], "expected a dict, got [] (list)"),
        ("COST_RATES", {"m": {"INPUT": 1}}, "for 'm': unknown key 'INPUT' (did you mean 'input'?)"),
        ("COST_RATES", {"m": {"inputs": 1}}, "for 'm': unknown key 'inputs' (did you mean 'input'?)"),
        ("COST_RATES", {"m": 5}, "for 'm': expected a dict, got 5 (int)"),
        ("COST_RATES", {"acme/*": {}}, "expected the whole name of a model, got 'acme/*'; prices have no `*`"),
        ("REQUEST_FORMS", {"m": {5: 9}}, "for 'm': unknown key 5 (known keys: call_id_length, empty_content)"),
        ("REQUEST_FORMS", {5: {}}, "expected the name of a model, got 5 (int)"),
        ("REQUEST_FORMS", {"a*b": {}}, "or how it begins with one `*` at the end, got 'a*b'"),
        ("REQUEST_FORMS", {"a**": {}}, "or how it begins with one `*` at the end, got 'a**'"),
        ("REQUEST_FORMS", {"m": {"call_id_length": "9"}}, "a whole number from 6 to 40, or None, got '9' (str)"),
        ("REQUEST_FORMS", {"m": {"call_id_length": 41}}, "a whole number from 6 to 40, or None, got 41 (int)"),
        ("REQUEST_FORMS", {"m": {"empty_content": "no"}}, 'one of the texts "null", "absent", "empty", got \'no\''),
        ("COST_RATES", {"m": {"input": "2,50"}}, "for 'm': expected `input` to be US dollars per million tokens"),
        ("COST_RATES", {"m": {"input": -1}}, "got -1"),
        ("COST_RATES", {"m": {"output": float("nan")}}, "got nan"),
        ("COST_RATES", {"m": {"output": "1e30"}}, "got '1e30'"),
        ("COST_RATES", {"m": {"output": True}}, "got True (bool)"),
        ("COST_RATES", {"m": {"thinking": None}}, "got None"),
        ("LEASE_SECONDS", 10**12, "expected at most 2147483 seconds, got 1000000000000"),
        # In a list, because pytest cannot print the number itself.
        ("LEASE_SECONDS", [10**5000], "expected a whole number, got a list that cannot be printed (list)"),
        ("MODEL_TIMEOUT", 10**12, "expected at most 2147483 seconds"),
        ("TIMEOUT", 2**31, "expected at most 2147483647"),
        ("MAX_OUTPUT_TOKENS", 2**40, "expected at most 2147483647"),
        ("QUEUE", " ", "expected text that is not empty, got ' '"),
        ("DEFAULT_MODEL", "a\x00", "without NUL and lone surrogates, got 'a\\x00'"),
    ],
)
def test_a_wrong_value_is_told_with_what_was_expected_and_what_came(name: str, value: Any, message: str):
    [(kind, said, hint)] = told(**{name: value})
    assert (kind, said.startswith(f"TURNKIT[{name!r}]: ")) == ("value", True)
    assert message in said
    assert hint == f"default: {getattr(conf.Settings(), name)!r}; see `{name}` in docs/settings.md"


def test_the_least_and_the_greatest_value_of_each_number_are_as_documented():
    page = (Path(__file__).parents[1] / "docs/settings.md").read_text()
    found = re.findall(r"^## (\w+)\n(?:(?!##).*\n)*?A whole number from (\d+) to (\d+)[,.]", page, re.MULTILINE)
    bounds = {name: (int(least), int(most)) for name, least, most in found}
    assert set(bounds) == {name for name, kind in get_type_hints(conf.Settings).items() if kind in (int, int | None)}
    for name, (least, most) in bounds.items():
        taken = [number for number in (least - 1, least, most, most + 1) if not told(**{name: number})]
        assert (name, taken) == (name, [least, most])


def test_no_path_is_proposed_for_a_function_that_has_none():
    [(_, said, _hint)] = told(ON_EVENT=lambda event: None)
    assert said.endswith("(function)")


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
        {"REQUEST_FORMS": {"*": {}, "m": {"call_id_length": None, "empty_content": "empty"}}},
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
