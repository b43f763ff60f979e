# Everything below works from a bare clone: the first target that needs it makes .venv.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2
BENCH ?= bench
DATA ?= $(wildcard ../shared/data)
BENCH_ARGS ?=

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

bench: $(STAMP) ## Measure everything against DGL and PyG: a report in bench/ (DATA=FOLDER of real streams)
	@$(BIN)/d3gnn bench report --out $(BENCH) $(if $(DATA),--data $(DATA)) $(BENCH_ARGS)

clean: ## Remove the environment, the caches and the outputs
	rm -rf $(VENV) build dist out bench .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests -type d -name __pycache__ -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@echo "== environment ($(VENV))"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
	@# DGL names an old torch, and works with the one that is there.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps dgl==1.1.3 'setuptools<70'
	@touch $@
