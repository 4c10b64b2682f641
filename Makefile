# Every path is relative, so that the checkout may live in a folder with a space in its name.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# What each gate covers in full: a branch missed in these files is a state nobody has tried.
FULLY_COVERED := turnkit_django/core/*,turnkit_django/store/*,turnkit_django/engine/decide.py
# About half of the suite's time: each half runs on a core and servers of its own.
FIRST_HALF := tests/benchmarks tests/concurrency tests/faults tests/house tests/store

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

.PHONY: install lock test lint first-half second-half covered second-python package docs demo bench soak format clean

install: $(VENV)/.installed

# The environment is made anew when the lock changes: what left the lock must leave the environment.
$(VENV)/.locked: requirements.lock
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	touch $@

# An editable install carries no hash, so pip refuses it beside hashed requirements: hence a second step.
$(VENV)/.installed: $(VENV)/.locked pyproject.toml
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

# The lock is what `install` builds from, so this target needs only a uv: the environment's, or one on the PATH.
lock:
	PATH="$$PWD/$(BIN):$$PATH" uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	    pyproject.toml --extra demo --extra test --extra docs -o requirements.lock
	PATH="$$PWD/$(BIN):$$PATH" uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	    pyproject.toml --extra demo --extra bench -o benchmarks/requirements.lock

test: lint docs
	rm -f .coverage .coverage.*
	$(MAKE) --jobs=2 --output-sync=target first-half second-half second-python
	$(MAKE) covered package

# pip finds nothing without an index: this fails when pyproject.toml asks for what the lock does not hold.
# That the migrations describe the models is a test, because the question needs a database.
lint: install
	$(BIN)/python -m pip install --quiet --no-index --dry-run --no-build-isolation -e ".[demo,docs,test]"
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy turnkit_django
	$(BIN)/lint-imports --no-cache

first-half: install
	$(BIN)/python -m coverage run -m pytest $(FIRST_HALF) $(ARGS)

second-half: install
	$(BIN)/python -m coverage run -m pytest $(FIRST_HALF:%=--ignore=%) $(ARGS)

covered: install
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report
	$(BIN)/python -m coverage report --include "$(FULLY_COVERED)" --fail-under 100

# The newest Django needs a newer Python. Without one the tests of the first Python stand alone, and it is said.
second-python:
	@found="$$(.ci/second-python)"; \
	if [ -z "$$found" ]; then \
	    echo "second Python: none of 3.14, 3.13 and 3.12 runs here, so nothing was tried on the newest Django"; \
	else \
	    $(MAKE) install PYTHON="$$found" VENV=.venv-second && \
	    .venv-second/bin/python -m pytest -m "not kill and not once" $(ARGS); \
	fi

docs: install
	$(BIN)/python -m sphinx -W --keep-going -n -q -b html docs docs/_build/html

package: install
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/check-wheel-contents dist
	$(BIN)/twine check --strict dist/*

demo: install
	$(BIN)/python -m example_project.demo $(ARGS)

.venv-bench/.locked: benchmarks/requirements.lock
	$(PYTHON) -m venv --clear .venv-bench
	.venv-bench/bin/python -m pip install --quiet --require-hashes -r benchmarks/requirements.lock
	touch $@

# Its own environment: DBOS is no dependency of the project. The package is imported from this folder.
bench: .venv-bench/.locked
	.venv-bench/bin/python -m benchmarks $(ARGS)

# Ten to twenty minutes. It starts and stops its own servers, and needs nothing that the tests do not.
soak: install
	$(BIN)/python -m benchmarks.soak $(ARGS)

format: install
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

clean:
	rm -rf $(VENV) .venv-second .venv-bench docs/_build dist build .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
