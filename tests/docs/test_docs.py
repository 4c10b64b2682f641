"""The documents say what the code says."""

import re
from pathlib import Path

import pytest

import turnkit_django
from turnkit_django import checks, conf, errors, failpoints, testing
from turnkit_django.models.verbs import ConversationVerbs, TurnVerbs

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def headings(page: str) -> set[str]:
    return set(re.findall(r"^## (.+)$", (ROOT / "docs" / page).read_text(), re.MULTILINE))


def test_every_setting_has_a_heading():
    assert headings("settings.md") == set(conf.Settings.__dataclass_fields__)


def test_every_default_of_a_setting_is_told():
    told = dict(re.findall(r"^## (\w+)\n.*?^Default: `(.+?)`$", (ROOT / "docs/settings.md").read_text(), re.M | re.S))
    defaults = conf.Settings()
    assert {name: eval(value, {}) for name, value in told.items()} == {name: getattr(defaults, name) for name in told}


def test_every_check_has_a_heading():
    source = Path(checks.__file__).read_text()
    assert headings("checks.md") == set(re.findall(r"turnkit\.[EWI]\d{3}", source))


def test_every_error_has_a_heading():
    classes = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert headings("errors.md") - {"What rows keep"} == classes


def test_every_crash_point_and_name_of_the_kit_is_told():
    page = (ROOT / "docs/testing.md").read_text()
    told = set(re.findall(r"`(\w+)[`(]", page))
    assert set(failpoints.PUBLIC_POINTS) <= told
    assert set(testing.__all__) - told == set()


def test_every_public_name_stands_on_the_api_page():
    page = (ROOT / "docs/api.md").read_text()
    told = set(re.findall(r"\w+", page))
    assert {*turnkit_django.__all__, *testing.__all__} - told == set()
    verbs = {name for kind in (ConversationVerbs, TurnVerbs) for name in vars(kind) if not name.startswith("_")}
    assert {name for name in verbs if not re.search(rf"::? (?:Conversation|Turn)\.{name}\b", page)} == set()


def test_every_page_can_be_reached_on_the_site():
    index = (ROOT / "docs/index.md").read_text()
    listed = set(re.findall(r"^[\w/]+$", index, re.MULTILINE)) | {"index"}
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} - listed == set()


def test_every_decision_has_a_number_of_its_own():
    numbers = [page.name[:4] for page in sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))]
    assert numbers == [f"{number:04}" for number in range(1, len(numbers) + 1)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
