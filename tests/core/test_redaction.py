from __future__ import annotations

from time import perf_counter

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


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("cannot reach redis://:hunter2hunter2@cache:6379/0", "hunter2"),
        ("redis://:short@cache:6379/0", "short"),
        ("postgres://anna:p%40ss%2Fw0rd@db/app", "p%40ss"),
        ("postgres://anna:p@ssw0rd@db/app", "ssw0rd"),
        ("postgres://anna:pa/ssw0rd@db/app", "ssw0rd"),
        ("https://0123456789abcdef0123456789abcdef@o1.ingest.sentry.io/2", "0123456789abcdef"),
        ("password=hunter2", "hunter2"),
        ("host=db user=anna password=hunter port=5432", "hunter"),
        ("Server=db;PWD=hunter2;Encrypt=yes", "hunter2"),
        ("DB_PASSWORD='correct horse'", "correct horse"),
        ("passwd: hunter2", "hunter2"),
        ("passwd: hunter", "hunter"),
        ("X-Api-Key: abcdefabcdef", "abcdefabcdef"),
        ('{"api_key": "abcdefgh"}', "abcdefgh"),
        ("{'password': 'it'}", "'it'"),
        ("password = hunter", "hunter"),
        (r'{"body": "{\"api_key\": \"abc def\", \"n\": 1}"}', "abc def"),
        (r'{"body": "{\\\"password\\\": \\\"abc def\\\"}"}', "abc def"),
        (r'{"password": "abc\"def ghi"}', "def ghi"),
        ('{"password": "the text was cut he', "the text"),
        ("client_secret => abcdefgh", "abcdefgh"),
        ("x-api-key: abcd1234", "abcd1234"),
        ("API key: abcd1234", "abcd1234"),
        ("Cookie: csrftoken=abcdefgh; sessionid=ijklmnop", "ijklmnop"),
        ("https://blob/x?sv=1&sig=abc%2Fdef", "abc%2Fdef"),
        ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("{'Authorization': 'Basic abcdefgh'}", "abcdefgh"),
        (r"{\"authorization\": \"Token abcdefgh\"}", "abcdefgh"),
        ("proxy-authorization=Bearer lowercase", "lowercase"),
        ("sent Bearer abcdefgh1234", "abcdefgh1234"),
        ("key AKIAIOSFODNN7EXAMPLE.", "AKIAIOSFODNN7EXAMPLE"),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl end", "c2lnbmF0dXJl"),
        ("stripe sk_live_0123456789abcdef", "0123456789abcdef"),
        ("github_pat_0123456789abcdef and glpat-0123456789abcdef", "0123456789abcdef"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\ndef\n-----END RSA PRIVATE KEY-----", "MIIEabc"),
    ],
)
def test_the_usual_forms_of_credentials_are_taken_out(text: str, secret: str) -> None:
    cleaned = redact(text)
    assert secret not in cleaned
    assert "[redacted]" in cleaned
    assert redact(cleaned) == cleaned


def test_what_stands_around_a_credential_stays() -> None:
    assert redact("at redis://:hunter2hunter2@cache:6379/0 now") == "at redis://[redacted]@cache:6379/0 now"
    assert redact("host=db password=hunter2 port=5432") == "host=db password=[redacted] port=5432"
    assert redact('{"api_key": "a b c", "n": 1}') == '{"api_key": "[redacted]", "n": 1}'
    assert redact(r"{\"token\": \"a b c d\", \"n\": 1}") == r"{\"token\": \"[redacted]\", \"n\": 1}"


@pytest.mark.parametrize(
    "text",
    [
        "Basic requirements and Basic authentication; the bearer of bad news, a Bearer token.",
        "password: must be at least 8 characters; token: expected a text",
        "Unexpected token: '}' at line 1, max_tokens=8192, tokens: 12000, token_count=5",
        "Authorization: required. AuthorizationError: not allowed",
        "primary_key=True, key=value, idempotency_key=turn_1, password=None",
        '{"password": ["This field is required."], "secret": {"a": 1}}',
        "http://localhost:8000/a?mail=me@example.org and http://[::1]:8000/me@example.org",
        "ssh://git@example.org/a.git, postgres://db/app, mail me@example.org at 10:30@home",
        "the secret of a good keyboard is its key: press it",
        "if token == held: return, the port is http://db:5432, and mail me@example.org",
        "pk_orders_line_items, task-forces, /home/sk/files",
    ],
)
def test_ordinary_words_are_not_blacked_out(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("quoted", [r"a\"b c/d&e@f", "a%22b%20c%2Fd%26e%40f", 'a"b c/d&e@f'])
def test_known_values_are_found_as_json_and_urls_write_them(quoted: str) -> None:
    assert redact(f"<{quoted}>", secrets=['a"b c/d&e@f']) == "<[redacted]>"


@pytest.mark.parametrize("piece", ["://a:", "password=", "Bearer ", "eyJ", 'token: "', "a@", "sk-", "\\", "x" * 50])
def test_a_long_text_is_cleaned_in_no_time(piece: str) -> None:
    began = perf_counter()
    redact(piece * (100_000 // len(piece)))
    assert perf_counter() - began < 2
