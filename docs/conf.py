"""The documentation site, built by `python -m sphinx -W --keep-going -n -b html docs docs/_build/html`, offline."""

import tomllib
from pathlib import Path

import django
from django.conf import settings

_PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]

# The API page reads the docstrings of the models, which need an app registry, though no database.
settings.configure(
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "turnkit_django"],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "nothing connects to it"}},
    USE_TZ=True,
)
django.setup()

project = "turnkit_django"
author = "the turnkit_django contributors"
version = release = _PROJECT["version"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinxcontrib.mermaid",
]
exclude_patterns = ["_build"]
nitpicky = True
# The inventories of Python and Django would have to be downloaded: only names of this package are looked up.
nitpick_ignore_regex = [(r"py:.*", r"(?!turnkit_django\.(?!models\.)).*")]

myst_enable_extensions = ["attrs_inline", "colon_fence"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 3

# Docstrings write code as Markdown does, in single backticks.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

copybutton_prompt_text = "$ "
mermaid_fullscreen = False

html_theme = "furo"
html_title = "turnkit_django"
html_copy_source = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
