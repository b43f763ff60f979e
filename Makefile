# Everything below works from a bare clone: the first target that needs it makes .venv.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2
EDGES ?=
BENCH_ARGS ?= --engine local --parts 1 --batch 2000 --json

.PHONY: help run test check format bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(STAMP) ## Set everything up and run the main job
	@$(BIN)/d3gnn demo

test: check ## Set everything up and run every check (the same as check)

check: $(STAMP) ## Format, lint, types, import contracts, tests
	@echo "== format"
	@$(BIN)/ruff format --check .
	@echo "== lint"
	@$(BIN)/ruff check .
	@echo "== types"
	@$(BIN)/mypy
	@echo "== import contracts"
	@$(BIN)/lint-imports --no-logo
	@echo "== tests"
	@$(BIN)/pytest -q -n $(WORKERS) --dist worksteal

format: $(STAMP) ## Format the code and fix what the linter can fix
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

bench: $(STAMP) ## Measure throughput: EDGES=FILE for an edge list, else a synthetic stream
	@$(BIN)/d3gnn bench throughput $(if $(EDGES),--edges $(EDGES),--synthetic 1000000) $(BENCH_ARGS)

clean: ## Remove the environment, the caches and the outputs
	rm -rf $(VENV) build dist out .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests -type d -name __pycache__ -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@echo "== environment ($(VENV))"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
