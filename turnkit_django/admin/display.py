"""What a page shows of stored values: cut, harmless, in words and units a person reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import Expression, F, TextField
from django.db.models.functions import Cast, Left, Length
from django.utils import timezone
from django.utils.dateformat import format as date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString

from turnkit_django.core.display import duration, harmless

PREVIEW = 2_000
"""Most characters of one stored value on a page."""
SHORT = 100
"""Most characters of a name in a list."""
NOTHING = "\N{EN DASH}"

_LONGEST_INDENTED = 4 * PREVIEW  # JSON nested a thousand deep is mostly spaces when it is indented


@dataclass(frozen=True, slots=True)
class Value:
    """As much of a stored value as a page shows.

    Attributes:
        text: Its beginning, as it is stored; None is null.
        length: Characters of the whole.
        url: Where the whole can be had, if it was cut.
    """

    text: str | None
    length: int
    url: str = ""

    @property
    def is_cut(self) -> bool:
        return self.text is not None and self.length > len(self.text)

    @property
    def shown(self) -> str:
        return f"{len(self.text or ''):,}"

    @property
    def whole(self) -> str:
        return f"{self.length:,}"

    @property
    def readable(self) -> str:
        """JSON with an indent, if it is whole and JSON; otherwise the text as it is."""
        text = self.text or ""
        if self.is_cut or text[:1] not in "[{":
            return text
        try:
            indented = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            return text
        return indented if len(indented) <= _LONGEST_INDENTED else text


def cut_text(text: str, *, url: str = "", limit: int = PREVIEW) -> Value:
    return Value(text[:limit], len(text), url)


def cut(column: str | Expression, name: str, *, limit: int = PREVIEW) -> dict[str, Expression]:
    """Annotations `<name>_text` and `<name>_length`, so that the database sends no more than is shown."""
    text = Cast(F(column) if isinstance(column, str) else column, TextField())
    return {f"{name}_text": Left(text, limit), f"{name}_length": Length(text)}


def taken(row: Mapping[str, Any], name: str, *, url: str = "") -> Value:
    """What `cut` has annotated."""
    return Value(row[f"{name}_text"], row[f"{name}_length"] or 0, url)


def status(state: str) -> SafeString:
    """A state, told by its word; the colour only repeats it."""
    return format_html('<span class="turnkit-status turnkit-is-{0}">{0}</span>', state)


def money(amount: Decimal | None) -> str:
    """US dollars with every digit that counts; unknown is never 0."""
    if amount is None:
        return "unknown"
    digits = f"{amount:f}"
    return f"${digits.rstrip('0').rstrip('.') or '0'}" if "." in digits else f"${digits}"


def tokens(count: int) -> str:
    return f"{count:,}"


def seconds(amount: float) -> str:
    """A duration in its largest whole unit; below a second with a decimal."""
    return duration(amount) if amount >= 1 else f"{max(amount, 0):.1f} s"


def age(moment: datetime) -> str:
    passed = (timezone.now() if timezone.is_aware(moment) else datetime.now()) - moment  # noqa: DTZ005  both naive
    apart = seconds(abs(passed.total_seconds()))
    return f"{apart} ago" if passed.total_seconds() >= 0 else f"in {apart}"


def moment(value: datetime | None) -> str:
    """A time in the project's zone, and how long ago."""
    if value is None:
        return NOTHING
    local = timezone.localtime(value) if timezone.is_aware(value) else value
    shown = date_format(local, "Y-m-d H:i:s T")
    return format_html('<time datetime="{}">{}</time> ({})', local.isoformat(), shown, age(value))


def short(text: str | None, *, limit: int = SHORT) -> str:
    """A name or a sentence by a stranger, for one line."""
    return harmless(text, limit=limit) if text else NOTHING
