# `make quickstart` and `make test` are all a newcomer needs; `make help` lists the rest.
VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := $(VENV)/bin
IN_PARALLEL := $(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
# three tests share two cores: those of Ray and of servers wait more than they compute
export PYTEST_XDIST_AUTO_NUM_WORKERS := $(shell echo $$(( ($$(getconf _NPROCESSORS_ONLN) * 3 + 1) / 2 )))
TAKES_LONGER := networks training records study cluster api cli home dashboards nightly data/writing \
	data/reading/test_reader_s3.py data/reading/test_storage_outages.py data/reading/test_encoder_model.py \
	data/reading/test_encoder_semantics.py

unexport PYTHONDONTWRITEBYTECODE  # without it every test process and every worker of Ray compiles all modules anew

.PHONY: help quickstart install test test-quick test-slow lint benchmark gpu-check chaos mutation dashboards docs clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 14

quickstart: $(VENV)/.run  ## make the embedded data, compare three losses on it, show the leaderboard
	@$(BIN)/vsetune quickstart

test: $(VENV)/.dev  ## lint, types and the tests that fit into minutes
	$(BIN)/ruff check platform tests jobs benchmarks dashboards docs
	$(BIN)/mypy
	$(IN_PARALLEL)

test-quick: $(VENV)/.dev  ## the tests without networks, training, ingest, MLflow, Ray, servers and whole commands: three minutes
	$(IN_PARALLEL) $(TAKES_LONGER:%=--ignore=tests/%)

test-slow: $(VENV)/.dev  ## the tests that take longer: real training, real data, killed processes
	$(BIN)/python -m pytest -q -m slow --timeout 3600

benchmark: $(VENV)/.dev  ## every paired benchmark; each prints a ratio
	@for script in $(filter-out benchmarks/gpu_check.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

gpu-check:  ## networks and losses on this machine's GPU against its CPU, with any Python that has torch (docs/gpu.md)
	PYTHONPATH=platform $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) benchmarks/gpu_check.py

chaos: $(VENV)/.chaos  ## 60 kills and outages over short sweeps, held against the undisturbed ones; about 25 minutes
	PYTHONPATH=benchmarks $(BIN)/python -m chaos.run

mutation: $(VENV)/.dev  ## 60 small changes each to metrics, losses, ledger and search: do the tests notice? about 15 minutes
	PYTHONPATH=benchmarks $(BIN)/python -m mutation.run

dashboards: $(VENV)/.run  ## Prometheus on this machine, reading the studies that run here; files ready for Grafana
	@$(BIN)/python dashboards/up.py $(if $(TEMP_DIR),--temp-dir '$(TEMP_DIR)')

docs: $(VENV)/.docs  ## the site in build/site, its tutorials executed; about 3 minutes
	VSETUNE_HOME=$$(mktemp -d) NO_MKDOCS_2_WARNING=1 PYTHONPATH=docs $(BIN)/mkdocs build --quiet --strict
	@echo "to read it: $(BIN)/python -m http.server --directory build/site"

lint: $(VENV)/.dev  ## only ruff and mypy
	$(BIN)/ruff check platform tests jobs benchmarks dashboards docs
	$(BIN)/mypy

install: $(VENV)/.dev  ## the environment with every extra

clean:  ## remove the environment and caches, keep data and results
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache platform/vsetune.egg-info

INSTALL := $(BIN)/pip install --disable-pip-version-check --constraint constraints.txt --editable
# hundreds of lines of pip as one that changes; its errors stand below, and its exit code counts (pipefail)
SHELL := bash
.SHELLFLAGS := -o pipefail -c
IN_ONE_LINE := awk '/^(Collecting|  Downloading|Installing)/ { \
	count += /^Collecting/; printf "\r\033[K%3d packages: %.60s", count, $$0; fflush() } END { print "" }'

$(VENV)/.run: pyproject.toml constraints.txt
	@echo "installing into $(VENV): ray, torch, mlflow and what they need, 1 to 3 minutes"
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) . | $(IN_ONE_LINE)
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@$(INSTALL) '.[cnn,transformers,encoder,lora,parses,jobs,postgres,dashboards,docs,dev,mutation]' | $(IN_ONE_LINE)
	@touch $@

$(VENV)/.docs: $(VENV)/.run
	@$(INSTALL) '.[docs]' | $(IN_ONE_LINE)
	@touch $@

$(VENV)/.chaos: $(VENV)/.run
	@$(INSTALL) '.[chaos]' | $(IN_ONE_LINE)
	@touch $@
