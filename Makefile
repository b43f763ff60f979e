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

# The Java that Spark needs, and the package that has it on Debian and Ubuntu.
JAVA := 17
JRE := openjdk-$(JAVA)-jre-headless

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
	@# DGL requires an old torch, but works with the installed one.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps dgl==1.1.3 'setuptools<70'
	@$(MAKE) --no-print-directory java machines
	@touch $@

# Nothing else in the project installs Java. The check is the one that `d3gnn.session()` does.
.PHONY: java
java:
	@if $(BIN)/python -c 'from d3gnn.spark.java import java_home; java_home()' 2>/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "== Java $(JAVA) (apt-get install $(JRE))"; \
		apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends $(JRE); \
	else \
		echo "Spark needs Java $(JAVA) or newer: install it (Debian, Ubuntu: sudo apt-get install $(JRE);" \
			"macOS: brew install openjdk@$(JAVA)) or set JAVA_HOME to its folder" >&2; \
	fi

# What tests of several machines need beside root; without it they are skipped.
.PHONY: machines
machines:
	@if command -v ip >/dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then :; else \
		echo "== iproute2 (apt-get install iproute2)"; \
		apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends iproute2; \
	fi
