import re
from pathlib import Path

from turnkit_django.core.events import CATALOGUE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/operations.md").read_text()


def test_every_line_of_the_log_that_is_no_event_is_told():
    sources = "\n".join(path.read_text() for path in (ROOT / "turnkit_django").rglob("*.py"))
    logged = set(re.findall(r'"event": "([\w.]+)"', sources)) - set(CATALOGUE)
    told = re.findall(r"^\| `([\w.]+)` \| ", PAGE, re.MULTILINE)

    assert sorted(told) == sorted(logged)
