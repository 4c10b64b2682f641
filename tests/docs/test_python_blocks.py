"""Every Python block of README and docs runs, page by page, and the tests that a page shows pass."""

import inspect
import re
import sys
import unittest
from pathlib import Path

import pytest

from turnkit_django import testing
from turnkit_django.agents import registry

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^ *```([^\n]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
# Blocks with a caption are files, which belong to a page whose own test follows it.
FOLLOWED_BY_A_TEST = {"tutorial.md"}
EXAMPLE_PROJECT = Path(__file__).with_name("project")


def blocks(page: Path) -> list[tuple[str, str]]:
    return FENCE.findall(page.read_text())


TEST_CASES = [
    pytest.param(block, id=page.name)
    for page in PAGES
    for language, block in blocks(page)
    if language == "python" and "(TestCase)" in block
]


@pytest.fixture(autouse=True)
def reader_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """The app `shop` of a reader; what a page registers is forgotten at its end, but models are made once."""
    monkeypatch.setattr(registry, "_agents", dict(registry.registered()))
    monkeypatch.syspath_prepend(EXAMPLE_PROJECT)
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop" and name != "shop.models"]:
        del sys.modules[name]


@pytest.mark.django_db
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run(page: Path, request: pytest.FixtureRequest, turnkit_model, capsys):
    turnkit_model(lambda _request: testing.text("It is on its way."))
    namespace: dict[str, object] = {"__name__": "documented"}
    for language, block in blocks(page):
        if language == "python":
            known = set(namespace)
            exec(compile(block, str(page), "exec"), namespace)
            for name in set(namespace) - known:
                if name.startswith("test_") and inspect.isfunction(test := namespace[name]):
                    test(**{each: request.getfixturevalue(each) for each in inspect.signature(test).parameters})
    if page.name == "README.md":
        assert namespace["answer"] == "It is on its way."


@pytest.mark.django_db(transaction=True)  # Django's test cases open their own transaction, and close the connection.
@pytest.mark.parametrize("block", TEST_CASES)
def test_a_test_case_of_a_page_passes(block: str):
    namespace: dict[str, object] = {"__name__": "documented"}
    exec(compile(block, "a page", "exec"), namespace)
    outcome = unittest.TestResult()
    for case in [value for value in namespace.values() if getattr(value, "__module__", "") == "documented"]:
        unittest.defaultTestLoader.loadTestsFromTestCase(case).run(outcome)
    assert outcome.testsRun
    assert outcome.errors + outcome.failures == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_block_is_of_a_kind_that_a_test_knows(page: Path):
    kinds = {language for language, _ in blocks(page)}
    site = {"{include} ../README.md", "{include} ../CHANGELOG.md", "{toctree}", "{eval-rst}"}
    files = {kind for kind in kinds if kind.startswith("{code-block}")}

    assert kinds - files <= {"python", "console", "text", "json", "mermaid", "ini", "jinja"} | site
    assert not files or page.name in FOLLOWED_BY_A_TEST


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_imports_nothing_that_a_reader_lacks(page: Path):
    assert re.findall(r"^\s*(?:from|import) (?:tests|example_project)\b.*", page.read_text(), re.MULTILINE) == []
