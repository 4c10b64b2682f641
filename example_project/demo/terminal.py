"""What the demo says: lines while it happens, tables afterwards. Plain text where there is no terminal."""

from __future__ import annotations

import io
import os
import sys
import textwrap
import time
from collections.abc import Sequence

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

_WIDTH_WITHOUT_TERMINAL = 110
_STYLES = {"what": "", "good": "bold green", "bad": "bold red", "loud": "bold yellow", "quiet": "dim"}


def prepare_streams() -> None:
    """Make the standard streams usable, whatever the caller did to them.

    A closed one would lend its number to the next file or pipe that is opened, and a child would take that for its own
    standard stream.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a letter


class Terminal:
    def __init__(self) -> None:
        # Nothing that a customer or a model wrote is read as markup.
        self._console = Console(markup=False, highlight=False, emoji=False, soft_wrap=False)
        if not self._console.is_terminal:
            self._console.width = _WIDTH_WITHOUT_TERMINAL
        self._began = time.monotonic()

    def title(self, text: str) -> None:
        self._console.print()
        self._console.print(Text(text, style="bold"))

    def say(self, text: str, *, style: str = "what") -> None:
        """A line of the story, with the seconds since the beginning."""
        seconds = f"{time.monotonic() - self._began:6.1f} s  "
        lines = textwrap.wrap(text, max(20, self._console.width - len(seconds)), break_on_hyphens=False) or [""]
        for number, line in enumerate(lines):
            prefix = seconds if number == 0 else " " * len(seconds)
            self._console.print(Text.assemble((prefix, "dim"), (line, _STYLES[style])))

    def print(self, text: str, *, style: str = "what") -> None:
        self._console.print(Text(text, style=_STYLES[style]))

    def quote(self, who: str, text: str) -> None:
        self._console.print(Panel(Text(text), title=Text(who), title_align="left", expand=False))

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, note: str = "") -> None:
        self.title(title)
        table = Table(show_lines=False, header_style="bold")
        for column in columns:
            table.add_column(Text(column), overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self._console.print(table)
        if note:
            self.print(note, style="quiet")
