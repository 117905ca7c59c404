# The first two are for newcomers; `make help` lists all.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-oldest setup check docs bench paper paper-claims paper-figures paper-results paper-results-plan test-netem test-gpu clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /make \1\t/' | expand -t 26

demo: $(VENV)/ready ## four nodes on one 10 Mbit/s WiFi: which method gets there first? (2 minutes, after installing)
	$(BIN)/bwbench demo

test: $(VENV)/ready ## every package, and one experiment from its file to its figures (some minutes)
	$(BIN)/python -m pytest -m 'not thorough' $(PYTEST_ARGS)

test-all: $(VENV)/ready ## all tests that this machine can run (half an hour)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# torch is the release of the constraints file: older ones are gigabytes that nobody needs to have twice. A deprecation
# is no failure here: old libraries are told off by newer ones that they import.
OLDEST := .venv-oldest
# Something of every library that is needed: a few files each.
OLDEST_TESTS := tests/contract/test_codecs.py tests/contract/test_models.py tests/unit/experiment/config \
  $(patsubst %,tests/unit/cli/test_%.py,data_command demo help init_experiment plan_and_list result_commands) \
  tests/unit/results/report tests/unit/running/launch/test_ssh_parts.py tests/e2e/test_run.py tests/e2e/test_lightning.py \
  tests/netns/test_network.py tests/hosts/test_ssh.py::test_from_preflight_to_figures
$(OLDEST)/ready: pyproject.toml constraints.txt tests/oldest_versions.py
	@if [ ! $@ -nt pyproject.toml ] || [ ! $@ -nt constraints.txt ]; then set -ex; \
	  test -x $(OLDEST)/bin/pip || $(PYTHON) -m venv $(OLDEST); \
	  $(PYTHON) tests/oldest_versions.py > $(OLDEST)/oldest.txt; \
	  grep '^torch==' constraints.txt >> $(OLDEST)/oldest.txt; \
	  $(OLDEST)/bin/pip --disable-pip-version-check install -q -c constraints.txt torch; \
	  $(OLDEST)/bin/pip --disable-pip-version-check install -q -c $(OLDEST)/oldest.txt -e '.[test]'; \
	  touch $@; fi

test-oldest: $(OLDEST)/ready ## with the oldest versions that pyproject.toml allows, torch excepted (minutes)
	$(OLDEST)/bin/python -m pytest -q -W default::DeprecationWarning $(OLDEST_TESTS) $(PYTEST_ARGS)

setup: $(VENV)/ready ## the virtual environment that every other target uses

# The stamps below are looked at by the shell as well, because `make -B` holds every file to be out of date and nobody
# wants to download gigabytes for that. torch first and alone, by the constraints file: a bare `torch` would bring CUDA.
COMPILED := $(wildcard setup.py bwbench/methods/native*.[ch])
$(VENV)/ready: pyproject.toml constraints.txt $(COMPILED)
	@if [ ! $@ -nt pyproject.toml ] || [ ! $@ -nt constraints.txt ] \
	  || [ -n "$$(find /dev/null $(COMPILED) -type f -newer $@)" ]; then set -ex; \
	  test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV); \
	  $(PIP) install -q -c constraints.txt torch; \
	  $(PIP) install -q -c constraints.txt -e '.[test,check]'; \
	  touch $@; fi

# Reading records and drawing figures needs no torch, and nothing built: an environment for that alone is there in less
# than half a minute. Modules are compiled when they are first imported: most never are.
READING = numpy pandas matplotlib pydantic PyYAML typer rich jinja2
$(VENV)/reading: pyproject.toml constraints.txt
	@if [ ! $(VENV)/ready -nt pyproject.toml ] && [ ! $@ -nt pyproject.toml ]; then set -ex; \
	  test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV); \
	  $(PIP) install -q --no-compile -c constraints.txt $(READING); \
	  touch $@; fi

check: $(VENV)/ready ## style, types, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Into the environment that is there: the site names the commands, and so needs the package.
$(VENV)/docs: $(VENV)/ready
	@if [ ! $@ -nt pyproject.toml ] || [ ! $@ -nt constraints.txt ]; then set -ex; \
	  $(PIP) install -q -c constraints.txt -e '.[docs]'; \
	  touch $@; fi

docs: $(VENV)/docs ## the documentation as a site, with search: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "$$(find site -name '*.html' | wc -l) pages in site/; to search in them: python3 -m http.server -d site"

bench: $(VENV)/ready ## benchmarks: collectives, kill -9, links, relay, start-up (an hour); tables below benchmarks/out
	for file in benchmarks/*.py; do $(BIN)/python $$file --json benchmarks/out/$$(basename $$file .py).json || exit 1; done

FIGURES := paper/figures
# What stands for one link each, at one link alone: all would be hundreds of pictures, which `bwbench plot --all` draws.
AT := --at 10Mbps --at latency-100-ms
PUBLISHED := results/published
paper-figures: $(VENV)/reading ## figures of every published experiment into paper/figures/ as PDF; what README and findings say of them (a minute)
	@rm -rf $(FIGURES).new
	@set -x; $(BIN)/python -m paper.program --pages & pages=$$!; \
	  $(BIN)/python -m bwbench plot $(PUBLISHED) --all --out $(FIGURES).new --folders $(AT) --format pdf > /dev/null; \
	  drawn=$$?; wait $$pages && exit $$drawn
	@rm -rf $(FIGURES) && mv $(FIGURES).new $(FIGURES)
	@echo "$$(find $(FIGURES) -type f | wc -l) files in $(FIGURES)"

# One experiment after the other, each published when it is finished. After an interruption the same command goes on.
# An experiment that cannot be planned lacks learning rates: then these are searched for first.
EXPERIMENTS ?= $(wildcard experiments/*.yaml)
RESULTS ?= results
PLAN = $(BIN)/bwbench plan $$file --results $(RESULTS)
TUNE = $(BIN)/bwbench tune $$file --results $(RESULTS)
paper-results: paper-results-plan ## run what is not published yet of all experiments, and publish it; hours, said beforehand
	@for file in $(EXPERIMENTS); do echo "== $$file"; \
	  $(PLAN) > /dev/null 2>&1 || $(TUNE) || exit 1; \
	  $(BIN)/bwbench sweep $$file --results $(RESULTS) || test $$? -eq 1 || exit 1; \
	  $(BIN)/bwbench publish $(RESULTS)/$$(basename $$file .yaml) || exit 1; done

paper-results-plan: $(VENV)/ready ## how long `make paper-results` takes, experiment by experiment
	@for file in $(EXPERIMENTS); do if $(PLAN) > /dev/null 2>&1; then printf "$$file: "; $(PLAN) 2>&1 > /dev/null | tail -n 1; \
	  else printf "$$file, learning rates first: "; $(TUNE) --dry-run 2>&1 > /dev/null | tail -n 1; fi; done

paper: $(VENV)/ready ## the paper from the published records: paper/build/paper.pdf and paper.md
	$(BIN)/python -m paper.program --source paper --results $(PUBLISHED) --out paper/build $(PAPER_ARGS)

paper-claims: $(VENV)/ready ## every claim of the paper, with its value and the direction that it would support
	$(BIN)/python -m paper.program --source paper --results $(PUBLISHED) --claims

test-netem: $(VENV)/ready ## the netem back end, in a user-mode kernel that has it (Debian: user-mode-linux)
	tests/netem/run

test-gpu: $(VENV)/ready ## on a machine with a GPU: every method trains there, copies overlap (two minutes)
	$(BIN)/python -m pytest -q tests/gpu $(PYTEST_ARGS)

clean: ## leftovers of runs that were killed
	$(BIN)/bwbench clean
