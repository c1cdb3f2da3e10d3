# Every target works on a fresh machine with Python 3.11 or newer and make; after the first time, without a network too.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
SETUP := pyproject.toml setup.py
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadgroup

.DEFAULT_GOAL := help
.PHONY: help install run test test-full lint clean
.DELETE_ON_ERROR:

help: ## this list
	@awk -F ':[^#]*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

install: $(STAMPS)/run ## make .venv and install hetsys in it

run: $(STAMPS)/run ## install, run the default experiment (ten schedulers, twenty seeds), print its tables
	$(BIN)/python -m hetsys run

test: $(STAMPS)/test ## install, run the tests as continuous integration does
	HYPOTHESIS_PROFILE=ci $(PYTEST)

test-full: $(STAMPS)/test ## the same tests with a thousand examples for each property
	HYPOTHESIS_PROFILE=full $(PYTEST)

lint: $(STAMPS)/lint ## ruff and mypy
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy

clean: ## remove .venv and what tools have cached; results stay
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

# A stamp says that its extras are installed; it ages when pyproject.toml or setup.py changes.
$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "hetsys needs Python 3.11 or newer and $(PYTHON) is older; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q 'setuptools>=77'
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/run: EXTRA := analysis
$(STAMPS)/test: EXTRA := test
$(STAMPS)/lint: EXTRA := dev
$(STAMPS)/run $(STAMPS)/test $(STAMPS)/lint: $(STAMPS)/venv $(SETUP)
	@echo "installing hetsys[$(EXTRA)] in $(VENV) (about a minute the first time) ..."
	$(BIN)/python -m pip install -q --no-build-isolation -e '.[$(EXTRA)]'
	@touch $@
