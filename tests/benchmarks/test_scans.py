"""The scans are measured as they are: each has its row, and finds something."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(120)


def test_every_scan_is_measured_with_few_and_with_more_finished_turns():
    command = [sys.executable, "-m", "benchmarks.scans", "--turns", "2000"]

    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    assert (done.returncode, done.stderr) == (0, "")
    measured = re.findall(r"^\| ([a-z -]+) \| [\d.]+ \| ([\d,]+) \| [\d.]+ \| ([\d,]+) \|$", done.stdout, re.MULTILINE)
    told = re.findall(r"^\| ([a-z -]+) \| [\d.]+ \| [\d,]+ \|", (ROOT / "docs/operations.md").read_text(), re.MULTILINE)
    assert [name for name, _few, _more in measured] == told
    assert "0" not in {pages for row in measured for pages in row[1:]}
