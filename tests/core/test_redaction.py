from __future__ import annotations

import pytest

from turnkit_django.core.redaction import looks_secret, redact


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Incorrect API key provided: sk-test-THISISSECRET123456. Try again", "THISISSECRET123456"),
        ("url: https://host/v1?key=AIzaTESTSECRET0000000000000000000000000&x=1", "TESTSECRET"),
        ("url: https://host/v1?api_key=abcdefgh12345 end", "abcdefgh12345"),
        ("url: https://host/v1?a=b&access_token=abcdefgh12345 end", "abcdefgh12345"),
        ("Authorization: Bearer tok_SECRETSECRETSECRET", "tok_SECRETSECRETSECRET"),
        ("Authorization: Basic dXNlcjpwYXNzd29yZA==", "dXNlcjpwYXNzd29yZA"),
        ("postgres://anna:hunter2@db/app", "hunter2"),
        ("token ghp_0123456789abcdefghij!", "0123456789abcdefghij"),
    ],
)
def test_what_looks_like_a_credential_is_taken_out(text: str, secret: str) -> None:
    cleaned = redact(text)
    assert secret not in cleaned
    assert "[redacted]" in cleaned


def test_the_rest_of_the_text_stays() -> None:
    text = "Incorrect API key provided: sk-test-THISISSECRET123456. Try again"
    assert redact(text) == "Incorrect API key provided: [redacted]. Try again"
    assert redact("nothing to hide: task-force, ask-me, a risk-averse user") == (
        "nothing to hide: task-force, ask-me, a risk-averse user"
    )


def test_known_values_are_taken_out_whatever_they_look_like() -> None:
    assert redact("password is hunter2-hunter2.", secrets=["hunter2-hunter2"]) == "password is [redacted]."


def test_the_longest_known_value_goes_first() -> None:
    assert redact("12345678-suffix", secrets=["12345678", "12345678-suffix"]) == "[redacted]"


def test_short_values_would_black_out_ordinary_words() -> None:
    assert redact("the dog barks", secrets=["dog", ""]) == "the dog barks"


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "db_password", "GITHUB_TOKEN", "SENTRY_DSN", "DB_PASSWORD_TEST"])
def test_names_of_secrets_are_recognised(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize("name", ["PATH", "HOME", "LANG", "DJANGO_SETTINGS_MODULE"])
def test_other_names_are_not(name: str) -> None:
    assert not looks_secret(name)
