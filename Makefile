# Needs make and Python 3.11 or newer; everything else goes into $(VENV).
VENV ?= .venv
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check install --quiet
# Some tests wait for programs that they start: one worker more than two cores.
JOBS ?= 3

.PHONY: help demo test unit fuzz properties lint lint-repository bench docs format dist pyz pyz-all pyz-x86_64 pyz-aarch64 sbom constraints clean

help:
	@echo 'make demo    read a shipped log with a real fault'
	@echo 'make test    lint and all tests'
	@echo 'make lint    check code, workflows, issue forms and shell scripts'
	@echo 'make unit    all tests'
	@echo 'make fuzz    changed inputs for every reader: SEED=1 MINUTES=10'
	@echo 'make properties  all properties with many times as many examples'
	@echo 'make bench   measure reading, start-up and the live screen'
	@echo 'make docs    build the site into site/ and follow its links'
	@echo 'make format  format the code'
	@echo 'make pyz     preflight as one file; pyz-x86_64 and pyz-aarch64 for other machines'
	@echo 'make pyz-all the whole program as one file, for a login node'
	@echo 'make dist    wheel and source archive, checked'
	@echo 'make sbom    list of the parts of an installation'
	@echo 'make constraints  pin the newest versions of all packages'

demo: $(VENV)/.installed
	@echo '$$ nccl-doctor analyze fixtures/demo.log'
	@$(BIN)/nccl-doctor analyze fixtures/demo.log || test $$? -eq 1

test: lint unit

unit: $(VENV)/.developing
	$(BIN)/python -m pytest -n $(JOBS)

# Inputs of every reader, changed as their format asks for; it stops by itself. Finds lie in .fuzz/finds.
SEED ?= 1
MINUTES ?= 10
fuzz: $(VENV)/.developing
	$(BIN)/python bench/fuzz --seed $(SEED) --minutes $(MINUTES) --jobs $(JOBS)

# All properties with many times as many examples, which are new ones each time.
FUZZ ?= 20
properties: $(VENV)/.developing
	NCCL_DOCTOR_FUZZ=$(FUZZ) $(BIN)/python -m pytest -n $(JOBS) -m hypothesis -o timeout=3600

lint: lint-repository
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

SCHEMA = $(BIN)/check-jsonschema --quiet --builtin-schema
lint-repository: $(VENV)/.developing
	$(SCHEMA) vendor.github-workflows .github/workflows/*.yml
	$(SCHEMA) custom.github-workflows-require-timeout .github/workflows/*.yml
	$(SCHEMA) vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(SCHEMA) vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(SCHEMA) vendor.dependabot .github/dependabot.yml
	$(SCHEMA) vendor.citation-file-format CITATION.cff
	$(SCHEMA) vendor.github-actions action.yml
	$(BIN)/zizmor --offline --quiet --no-progress .github action.yml
	$(BIN)/shellcheck --severity=warning .ci/run $(shell find docs packaging -name '*.sh')

format: $(VENV)/.developing
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.developing
	$(BIN)/python bench/run.py

# Nothing is fetched: fonts and scripts are in the pages, links are followed on the disk. `python -m http.server -d site` shows it.
docs: $(VENV)/.documenting
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	$(BIN)/python docs/generator/check_links.py site

dist: $(VENV)/.developing
	rm -rf dist
	$(BIN)/python -m hatchling build
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl

# What preflight needs and nothing else; the C libraries in it are those of this Python and this machine.
PREFLIGHT = click nvidia-ml-py psutil ClusterShell PyYAML
SHIV = $(BIN)/shiv --compressed --compile-pyc --python '/usr/bin/env python3' --entry-point nccl_doctor.__main__:run
pyz: $(VENV)/.developing
	rm -rf build/pyz
	$(PIP) --target build/pyz --no-deps --constraint constraints.txt . $(PREFLIGHT)
	$(SHIV) --site-packages build/pyz --output-file nccl-doctor.pyz
	$(BIN)/python pyz_start.py nccl-doctor.pyz
	@ls -l nccl-doctor.pyz

# The whole program without extras, for this version of Python and machines like this one.
pyz-all: $(VENV)/.developing
	rm -rf build/pyz-all
	$(PIP) --target build/pyz-all --constraint constraints.txt .
	$(SHIV) --site-packages build/pyz-all --output-file nccl-doctor-all.pyz
	$(BIN)/python pyz_start.py nccl-doctor-all.pyz
	@ls -l nccl-doctor-all.pyz

# The same as pyz for other machines with the same version of Python: their wheels are fetched, and nothing of them runs here.
pyz-x86_64 pyz-aarch64: pyz-%: $(VENV)/.developing
	rm -rf build/pyz-$*
	$(PIP) --target build/pyz-$* --no-deps .
	$(PIP) --target build/pyz-$* --upgrade --no-deps --constraint constraints.txt --only-binary=:all: --implementation cp \
		--platform manylinux2014_$* --platform manylinux_2_28_$* $(PREFLIGHT)
	$(SHIV) --site-packages build/pyz-$* --output-file nccl-doctor-$*.pyz
	$(BIN)/python pyz_start.py nccl-doctor-$*.pyz
	@ls -l nccl-doctor-$*.pyz

# The parts of an installation without extras, as CycloneDX; checked against its schema.
sbom: $(VENV)/.developing
	rm -rf build/runtime
	mkdir -p dist
	$(BIN)/python -m venv --without-pip build/runtime
	$(BIN)/python -m pip --disable-pip-version-check --quiet --python build/runtime/bin/python install --constraint constraints.txt .
	$(BIN)/cyclonedx-py environment --output-reproducible --validate \
		--output-file dist/nccl-doctor.cdx.json build/runtime/bin/python
	@ls -l dist/nccl-doctor.cdx.json

# One file for Python 3.11 to 3.14 and every platform; look at the difference before you commit it.
constraints: $(BIN)/python
	$(PIP) uv
	$(BIN)/uv pip compile --universal --python-version 3.11 --all-extras --no-annotate --upgrade --quiet \
		--custom-compile-command 'make constraints' --output-file constraints.txt pyproject.toml

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.developing: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --constraint constraints.txt --editable '.[dev,bundle,cluster,mcp,parquet,pictures,tensorboard]'
	@touch $@ $(VENV)/.installed

$(VENV)/.documenting: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --constraint constraints.txt --editable '.[docs]'
	@touch $@ $(VENV)/.installed

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo 'nccl-doctor needs Python 3.11 or newer; name one with make PYTHON=/path/to/python3' >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments: the modules venv and ensurepip are missing" >&2; \
		echo 'On Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
