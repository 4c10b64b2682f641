import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "turnkit_django"
PAGE = (ROOT / "docs/architecture.md").read_text()
ROWS = dict(re.findall(r"^\| (`[^|]+`) \| (.+) \|$", PAGE.split("## Rooms")[1].split("## ")[0], re.MULTILINE))
LISTED = {"core/", "engine/", "store/"}


def modules(room: str) -> set[str]:
    return {path.stem for path in (PACKAGE / room).glob("*.py")} - {"__init__"}


def test_every_room_on_disk_is_told_and_no_other():
    folders = {f"{path.name}/" for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    files = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py"}
    outside = re.findall(r"`(\w+\.py)`", PAGE.split("Outside the ladder")[1].split("\n\n")[0])
    told = [name for cell in ROWS for name in re.findall(r"`([\w./]+)`", cell)] + outside

    assert sorted(told) == sorted(folders | files)


@pytest.mark.parametrize("room", sorted(LISTED))
def test_every_module_of_a_room_with_a_list_is_told(room: str):
    [row] = [text for cell, text in ROWS.items() if f"`{room}`" in cell]

    assert modules(room) - set(re.findall(r"`(\w+)`", row)) == set()
