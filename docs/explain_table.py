"""Writes the table of reasons in explain.md out of the code: `python docs/explain_table.py`."""

import re
from pathlib import Path

PAGE = Path(__file__).with_name("explain.md")


def table() -> str:
    """The reasons in the order of the code; what is filled in from the rows is left open."""
    from turnkit_django.core.reasons import MEANINGS

    lines = ["| reason | status | it … | since | limit | what moves it |", "| --- | --- | --- | --- | --- | --- |"]
    for reason, meaning in MEANINGS.items():
        since = (
            ", ".join(f"`{column}`" for column in meaning.since)
            or "when the tool began; for other steps as of the step"
        )
        limit = f"`{meaning.limit}`" if meaning.limit else ""
        cells = [f"`{reason}`", meaning.status, meaning.summary, since, limit, meaning.action]
        lines.append(re.sub(r"\{\w+\}", "…", f"| {' | '.join(cells)} |"))
    return "\n".join(lines)


def written(page: str) -> str:
    """`page` with the table made anew."""
    pattern = r"(<!-- generated: reasons -->).*(<!-- end of reasons -->)"
    return re.sub(pattern, lambda found: f"{found[1]}\n\n{table()}\n\n{found[2]}", page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
