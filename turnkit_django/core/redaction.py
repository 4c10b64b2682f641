"""Secrets out of texts that are stored, logged or shown."""

from __future__ import annotations

import re
from collections.abc import Iterable

REPLACEMENT = "[redacted]"
_SHORTEST = 8  # a shorter value would black out ordinary words

_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|DSN)", re.IGNORECASE)
_PATTERNS = (
    re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}"),  # OpenAI, Anthropic, Stripe
    re.compile(r"\bAIza[A-Za-z0-9_-]{20,}"),  # Google
    re.compile(r"\b(?:ghp|gho|ghs|xox[abp])[_-][A-Za-z0-9_-]{10,}"),  # GitHub, Slack
    re.compile(r"(?<=\bBearer )[^\s\"',;]+", re.IGNORECASE),
    re.compile(r"(?<=\bBasic )[A-Za-z0-9+/=]{8,}"),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),  # user:password in a URL
    re.compile(r"(?:(?<=[?&]key=)|(?<=[?&]api_key=)|(?<=[?&]token=)|(?<=[?&]access_token=))[^&\s\"']+", re.IGNORECASE),
)


def looks_secret(name: str) -> bool:
    """Whether a variable of this name usually holds a secret."""
    return bool(_SECRET_NAME.search(name))


def redact(text: str, *, secrets: Iterable[str] = ()) -> str:
    """Replace the given values, and whatever looks like a credential, by `[redacted]`."""
    for value in sorted({value for value in secrets if len(value) >= _SHORTEST}, key=len, reverse=True):
        text = text.replace(value, REPLACEMENT)
    for pattern in _PATTERNS:
        text = pattern.sub(REPLACEMENT, text)
    return text
