# Two commands on a fresh machine with Python 3.11 or later, pip and make:
#   make run    sets up .venv and takes the tour: three models trained, measured, opened, proved
#   make test   sets up .venv and runs the tests: all a contributor needs, in about four minutes
# Further: make test-all (also the full grids, the trainings of the docs, timed and long tests),
# make check (lint, types, layers), make docs (generated parts of the docs), make site (the docs as
# a site), make clean.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt

.PHONY: run test test-all check docs site clean
.DEFAULT_GOAL := run

run: $(VENV)/.installed
	@$(BIN)/qkv tour
	@echo "\nThe program is $(BIN)/qkv; after '. $(BIN)/activate' it is just qkv."

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest

test-all: test
	$(BIN)/python -m pytest -m slow

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.installed-dev
	$(BIN)/python tools/docs.py

site: $(VENV)/.installed-dev
	$(BIN)/zensical build --strict

clean:
	rm -rf $(VENV) site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("qkv needs Python 3.11 or later, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing qkv into $(VENV) (once; a minute or more)"
	$(PIP) -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing qkv and its test tools into $(VENV) (once; a minute or more)"
	$(PIP) -e '.[test,dev,docs]'
	@touch $(VENV)/.installed $@
