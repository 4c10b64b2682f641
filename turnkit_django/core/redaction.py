"""Secrets out of texts that are stored, logged or shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, unquote

REPLACEMENT = "[redacted]"
_SHORTEST = 8  # a shorter value would black out ordinary words

_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|DSN)", re.IGNORECASE)
_HARMLESS_NAME = re.compile(r"(HASHERS|VALIDATORS|PREFIX|FUNCTION|NAME|TIMEOUT|HEADER|BACKENDS?|CLASS)$", re.IGNORECASE)
_TOKENS = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?"),
    re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}"),  # OpenAI, Anthropic
    re.compile(r"\b(?:[spr]k_(?:live|test)|whsec)_[A-Za-z0-9]{8,}"),  # Stripe
    re.compile(r"\bAIza[A-Za-z0-9_-]{20,}"),  # Google
    re.compile(r"\b(?:gh[pousr]|github_pat|glpat|hf|xox[abeprs]|xapp)[_-][A-Za-z0-9_-]{10,}"),  # GitHub, GitLab, Slack
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),  # Amazon
    re.compile(r"\beyJ[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)+"),  # JSON web tokens
)

# A quote may itself be quoted, any number of times: JSON inside of JSON.
_QUOTE = r"""\\{0,8}["']"""
_EQUALS = rf"(?:{_QUOTE})?\s{{0,3}}=>?(?!=)\s{{0,3}}"
_COLON = rf"(?:{_QUOTE})?\s{{0,3}}:\s{{0,3}}"
_SEPARATOR = rf"(?:{_EQUALS}|{_COLON})"
_NAMES = (
    r"pass(?:word|wd|phrase)|(?<![A-Za-z0-9])pwd|(?:api|secret|access|private|account)[ _-]?key"
    r"|secret|token|credentials?|session_?id|signature"
)
_NOTHING = r"(?!(?:none|null|true|false)\b|\[redacted)"
_WORD = r"[^\s\"'\\,;&<>(){}\[\]]"
_AFTER = (
    # The user and password of a URL. A slash belongs to the password only if no `@` stands before it, and never
    # follows what looks like a port.
    re.compile(
        r"(://)(?!\[redacted\]@)[^/\s:@\[\]\"']{0,256}:(?!\d{1,5}(?:[/?#,;)]|\b(?!@)[^\w%@]))"
        r"(?:[^/?#\s\"'<>]{1,256}|[^@\s\"'<>]{1,256})(?=@)"
    ),
    re.compile(r"(://)(?=[^/\s:@]{0,256}\d)[^/\s:@\[\]\"']{16,256}(?=@)"),  # a key in the place of the user
    re.compile(
        rf"((?i:\bauthorization){_SEPARATOR}(?:{_QUOTE})?(?i:bearer|basic|token|digest|apikey|aws4-hmac-sha256)\s+)"
        rf"{_NOTHING}[^\s\"'\\]+"
    ),
    re.compile(r"(\b(?i:bearer)\s+)(?=[^\s\"'\\,;]*[0-9_A-Z])[^\s\"'\\,;]{8,}"),
    re.compile(r"(\b(?i:basic)\s+)(?=[A-Za-z0-9+/]*[0-9=])[A-Za-z0-9+/=]{8,}"),
    re.compile(rf"([?&](?:key|sig)=){_NOTHING}[^&\s\"'\\]+", re.IGNORECASE),
    # In quotes: up to the same quote, or to the end of a text that was cut.
    re.compile(rf"((?:{_NAMES}){_SEPARATOR}({_QUOTE})){_NOTHING}(?:(?!\2)(?:\\.|[^\\\n])){{2,4000}}", re.IGNORECASE),
    re.compile(rf"((?:{_NAMES}){_EQUALS}){_NOTHING}{_WORD}+", re.IGNORECASE),
    # Names that no sentence uses.
    re.compile(
        rf"(\b(?:passwd|x-[a-z-]{{0,40}}(?:key|token|secret|signature)){_COLON}){_NOTHING}{_WORD}+", re.IGNORECASE
    ),
    # After a colon a sentence may go on: only what is no plain word.
    re.compile(
        rf"((?:{_NAMES}){_COLON}){_NOTHING}(?={_WORD}{{0,64}}[\d_!@#$%^*+=~]|[a-z]{{16}}){_WORD}{{4,}}", re.IGNORECASE
    ),
)
_URL_PASSWORD = re.compile(r"://[^/\s:@]*:([^\s]+)@")


def looks_secret(name: str) -> bool:
    """Whether a variable or setting of this name usually holds a secret."""
    return bool(_SECRET_NAME.search(name)) and not _HARMLESS_NAME.search(name)


def url_passwords(text: str) -> Iterator[str]:
    """The password in a URL, as written and as meant."""
    for password in _URL_PASSWORD.findall(text):
        yield password
        yield unquote(password)


def redact(text: str, *, secrets: Iterable[str] = ()) -> str:
    """Replace the given values, and whatever looks like a credential, by `[redacted]`."""
    known = {value for value in secrets if len(value) >= _SHORTEST}
    written = known | {quote(value, safe="") for value in known} | {json.dumps(value)[1:-1] for value in known}
    for value in sorted(written, key=len, reverse=True):
        text = text.replace(value, REPLACEMENT)
    for pattern in _TOKENS:
        text = pattern.sub(REPLACEMENT, text)
    for pattern in _AFTER:
        text = pattern.sub(rf"\g<1>{REPLACEMENT}", text)
    return text
