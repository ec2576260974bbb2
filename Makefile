# Each target sets up what it needs: a virtual environment in .venv, filled from requirements.lock,
# and filled again only when pyproject.toml or the lock changes.

# The first Python on the path that is new enough; `make PYTHON=... run` chooses another.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
SPARK  := $(VENV)/.spark
PYTEST := $(BIN)/python -m pytest

# Spark starts slowly: of its tests, `make test` runs those of the source, the sinks and the pipeline
# files in one JVM, `make spark` also the other pipelines, clusters, documents and crashes.
QUICK  := $(patsubst %,tests/spark/test_%.py,columnar documents lake options pipeline queues read stream \
                     typed upkeep workers write)
TESTS  := $(filter-out tests/spark tests/support tests/conftest.py tests/__pycache__,$(wildcard tests/*)) $(QUICK)

.DEFAULT_GOAL := help
.PHONY: help setup run serve test unit sweep spark spark-crash spark-bench lint format bench docs lock build clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml requirements.lock
	@test -n "$(PYTHON)" || { echo "Penstock needs Python 3.11 or newer, and finds none." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing what Penstock needs into $(VENV) ..." >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(SPARK): $(READY) requirements-spark.lock
	@echo "installing Spark into $(VENV) (about 1 GB) ..." >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-spark.lock
	@touch $@

setup: $(READY) ## Create .venv and install everything, nothing else

run: $(SPARK) ## Start a broker and show it at work; in a terminal it serves until Ctrl-C
	@$(BIN)/penstock demo

serve: $(READY) ## Start a broker on ./penstock-data
	@$(BIN)/penstock serve

test: lint $(SPARK) ## Everything that must pass: lint, types, all tests but the slow ones on Spark
	$(PYTEST) -q -n auto --dist loadgroup $(TESTS)

unit: $(READY) ## Only the fast tests
	$(PYTEST) -q tests/unit tests/property

sweep: $(READY) ## Random tests: thirty times as many examples, new ones in every run (half an hour)
	PENSTOCK_TEST_EFFORT=30 $(PYTEST) -q -n auto --timeout 3600 tests/property tests/simulation

spark: $(SPARK) ## Only the tests on Spark
	$(PYTEST) -q tests/spark

spark-crash: $(SPARK) ## Kill Spark's driver and the broker, a dozen times each (half an hour)
	PENSTOCK_TEST_KILLS=12 $(PYTEST) -q -rP tests/spark/test_crash.py tests/spark/test_lake_crash.py

spark-bench: $(SPARK) ## Spark: rows a second beside its own connector, Nexmark; writes the report
	$(BIN)/python -m benchmarks.spark --write

lint: $(READY) ## Style, imports and types
	$(BIN)/ruff check src tests benchmarks docs examples
	$(BIN)/ruff format --check src tests benchmarks docs examples
	$(BIN)/mypy

format: $(READY) ## Put the code in its standard form
	$(BIN)/ruff check --fix src tests benchmarks docs examples
	$(BIN)/ruff format src tests benchmarks docs examples

bench: $(READY) ## Throughput, latency, start time and memory, as ratios
	$(BIN)/python -m benchmarks

docs: $(READY) ## Write the reference pages that are derived from the code
	$(BIN)/python docs/generate.py

lock: ## Choose versions anew and write requirements.lock (needs uv)
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" \
	  --upgrade --output-file requirements.lock
	uv pip compile pyproject.toml --extra spark --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" \
	  --upgrade --constraint requirements.lock --output-file requirements-spark.lock

build: $(READY) ## Build the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean: ## Remove the environment, caches and builds (data in ./penstock-data stays)
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
