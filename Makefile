# The first two are for newcomers; `make help` lists all.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test setup check bench paper-figures test-netem clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /make \1\t/' | expand -t 22

demo: $(VENV)/ready ## four nodes on one 10 Mbit/s WiFi: which method gets there first? (2 minutes, after installing)
	$(BIN)/bwbench run configs/wifi_10mbps.yaml
	$(BIN)/bwbench plot results/wifi_10mbps

test: $(VENV)/ready ## all tests that this machine can run
	$(BIN)/python -m pytest $(PYTEST_ARGS)

setup: $(VENV)/ready ## the virtual environment that every other target uses

# torch first and alone, by the constraints file: a bare `torch` would bring gigabytes of CUDA to a machine without GPU.
$(VENV)/ready: pyproject.toml constraints.txt
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(PIP) install -q -c constraints.txt torch
	$(PIP) install -q -c constraints.txt -e '.[test,check]'
	touch $@

check: $(VENV)/ready ## style, types, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/ready ## benchmarks: collectives, kill -9, links, relay, start-up (an hour); tables below benchmarks/out
	for file in benchmarks/*.py; do $(BIN)/python $$file --json benchmarks/out/$$(basename $$file .py).json || exit 1; done

paper-figures: $(VENV)/ready ## figures of every experiment below results/
	$(BIN)/bwbench plot results

test-netem: $(VENV)/ready ## the netem back end, in a user-mode kernel that has it (Debian: user-mode-linux)
	tests/netem/run

clean: ## leftovers of runs that were killed
	$(BIN)/bwbench clean
