# Needs make and Python 3.11 or newer; everything else goes into $(VENV).
VENV ?= .venv
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check install --quiet
JOBS ?= 2

.PHONY: demo test lint bench format pyz clean

demo: $(VENV)/.installed
	@echo '$$ nccl-doctor analyze fixtures/demo.log'
	@$(BIN)/nccl-doctor analyze fixtures/demo.log || test $$? -eq 1

test: lint
	$(BIN)/python -m pytest -n $(JOBS)

lint: $(VENV)/.developing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.developing
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.developing
	$(BIN)/python bench/run.py

# What preflight needs and nothing else; the C libraries in it are those of this Python and this machine.
PREFLIGHT = click nvidia-ml-py psutil ClusterShell PyYAML
pyz: $(VENV)/.developing
	rm -rf build/pyz
	$(PIP) --target build/pyz --no-deps . $(PREFLIGHT)
	$(BIN)/shiv --site-packages build/pyz --compressed --python '/usr/bin/env python3' --entry-point nccl_doctor.cli.main:run --output-file nccl-doctor.pyz
	@ls -l nccl-doctor.pyz

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(PIP) --editable .
	@touch $@

$(VENV)/.developing: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.installed

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo 'nccl-doctor needs Python 3.11 or newer; name one with make PYTHON=/path/to/python3' >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments: the modules venv and ensurepip are missing" >&2; \
		echo 'On Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
