import re
import runpy
from pathlib import Path

from tests.core.test_explanation import explanation
from turnkit_django.core.reasons import Reason

DOCS = Path(__file__).parents[2] / "docs"
GENERATOR = runpy.run_path(str(DOCS / "explain_table.py"))
PAGE = (DOCS / "explain.md").read_text()


def test_the_table_of_reasons_is_that_of_the_code():
    # Mend it with: python docs/explain_table.py
    assert GENERATOR["written"](PAGE) == PAGE
    assert re.findall(r"^\| `(\w+)` \| [a-z, ]+ \| ", PAGE, re.MULTILINE)[-len(Reason) :] == list(Reason)


def test_every_key_of_the_json_is_told():
    keys = [key for cell in re.findall(r"^\| (`.+?`) \| ", PAGE, re.MULTILINE) for key in re.findall(r"`(\w+)`", cell)]

    assert keys[: -len(Reason)] == list(explanation().as_dict())
