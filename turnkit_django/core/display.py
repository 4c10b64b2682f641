"""What people are shown: text of strangers, in which nothing can hide or reorder what stands beside it, and lengths of
time.
"""

from __future__ import annotations

import re

# Overrides, embeddings and isolates reorder the text around them; the rest cannot be seen at all. Joiners of emoji and
# of Indic scripts (U+200C, U+200D), marks of direction (U+200E, U+200F) and line ends stay: languages need them.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u2028\u2029\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def harmless(text: str, *, limit: int | None = None) -> str:
    """`text` with control and invisible characters written out, such as `[U+202E]`; markup is for the template.

    Args:
        limit: Most characters of `text` to show; a longer one is cut before it is written out, and says so.
    """
    length = len(text)
    if limit is not None and length > limit:
        return f"{harmless(text[:limit])}… [cut: {limit:,} of {length:,} characters]"
    return _HIDDEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", text.replace("\r\n", "\n"))


def one_line(text: str, *, limit: int = 500) -> str:
    """`text` harmless, short and without line ends: in a log or an explanation it must not look like another entry."""
    return harmless(" ".join(text.split()), limit=limit)


def duration(seconds: float) -> str:
    """A length of time in its largest whole unit: `45 s`, `3 min`, `2 h`, `5 d`."""
    size, unit = next((each for each in _UNITS if seconds >= each[0]), _UNITS[-1])
    return f"{int(max(seconds, 0) // size)} {unit}"
