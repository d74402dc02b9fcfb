# `make demo` and `make test` need nothing but Python 3.11-3.13, make and a package registry: each does its own set-up.

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python

# Options for the targets, for instance: make test PYTEST_ARGS="-k router -x", make demo DEMO_ARGS=--help, make demo STORE=hazelcast
DEMO_ARGS ?=
STORE ?=
PYTEST_ARGS ?=
BENCH ?=
BENCH_ARGS ?=
KILLS ?= 200
SECONDS ?=
SEED ?= 1
CHAOS_ARGS ?=

# Here, for a line of a recipe that names make is carried out by `make --dry-run`, too.
CHECKS := $(MAKE) --no-print-directory types imports protos

.DEFAULT_GOAL := help
.PHONY: help demo test slow check lint types imports protos setup lock proto format bench chaos clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

demo: setup ## Run the demonstration on Spark: tasks move while they count, and five phases of load with elasticity and without
	@$(PY) -m examples.demo $(if $(STORE),--store $(STORE)) $(DEMO_ARGS)

test: lint ## Run everything: style, types, imports, protos, all tests
	@echo "== Tests; types, imports and protos beside them"
	@$(PY) tools/run_tests.py --beside "$(CHECKS)" -m "not slow" $(PYTEST_ARGS)

slow: setup ## Run the tests that take long: a few rounds of chaos, two runs of five phases
	@$(PY) -m pytest -m slow $(PYTEST_ARGS)

check: lint types imports protos ## Run the checks that start nothing

lint: setup ## Check style and format
	@echo "== Style: ruff"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .

types: setup ## Check types
	@echo "== Types: mypy"
	@$(BIN)/mypy

imports: setup ## Check who imports whom
	@echo "== Imports: import-linter"
	@$(BIN)/lint-imports --no-logo --no-cache

protos: setup ## Check the proto files and what was generated from them
	@echo "== Protos: buf, generated stubs"
	@$(BIN)/buf lint
	@$(BIN)/buf format --diff --exit-code
	@$(PY) tools/proto.py --check

proto: setup ## Generate Python from proto/
	@$(BIN)/buf format --write
	@$(PY) tools/proto.py

format: setup ## Format and fix what can be fixed
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format .

bench: setup ## Run benchmarks: make bench BENCH=wordcount, or without BENCH to list them
	@$(PY) -m benchmarks $(BENCH) $(BENCH_ARGS)

chaos: setup ## Kill processes of a real cluster during moves, half of them in a flood of tuples: make chaos KILLS=200, SECONDS=600, SEED=1, STORE=hazelcast
	@$(PY) -m chaos $(if $(SECONDS),--seconds $(SECONDS),--kills $(KILLS)) --seed $(SEED) $(if $(STORE),--store $(STORE)) $(CHAOS_ARGS)
	@$(PY) -m chaos --account frozen --kills 15 --seed $(SEED) $(if $(STORE),--store $(STORE))
	@$(PY) -m chaos --no-kills --seconds 60 --seed $(SEED) $(if $(STORE),--store $(STORE))
	@$(PY) -m chaos.cut --kills 10 --seed $(SEED) $(if $(STORE),--store $(STORE))

setup: ## Make .venv from requirements.lock (done by the others when needed)
	@python=$$(sh tools/python.sh) && "$$python" tools/setup.py
	@$(if $(filter setup,$(MAKECMDGOALS)),echo "The command elastic is in $(BIN): have it in this shell by '. $(BIN)/activate' and see 'elastic --help'.")

# Without the environment's own settings: a lock with a registry's address in it would only work here.
lock: ## Make requirements.lock anew from pyproject.toml (needs the .venv)
	@$(PY) -m uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --no-annotate --all-extras $(LOCK_ARGS) pyproject.toml -o requirements.lock
	@$(PY) -m uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --no-annotate $(LOCK_ARGS) tools/stubs.in -o tools/stubs.lock
	@! grep -n '://' requirements.lock tools/stubs.lock || { echo "a lock holds an address" >&2; exit 1; }

clean: ## Remove .venv, caches and build products
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
