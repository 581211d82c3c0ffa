# Two commands on a fresh machine: `make demo` runs the main job, `make test` passes the tests.
SHELL := /bin/bash
PY := .venv/bin/python
SEED ?= 1
STEPS ?= 20000
SEEDS ?= 1

.PHONY: setup demo test check tests proto sim sim-mutants bench compat-oracle clean help

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

setup: ## make .venv and install everything pinned
	@bash .ci/setup dev

demo: ## 336,776 flights through controllers, brokers, a Kafka client and Spark, while a broker is killed (KEEP=1 leaves it up)
	@bash .ci/setup demo
	@$(PY) deploy/demo/run.py $(if $(KEEP),--keep)

test: ## set-up, check and all tests
	@bash .ci/test

check: ## ruff, mypy and the import law
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports

proto: ## generate the gRPC code again
	@cd proto && ../$(PY) -m grpc_tools.protoc -I . --python_out=. --pyi_out=. --grpc_python_out=. barnabas_wire/rpc/*.proto

sim: ## replay seeds: SEED= STEPS= SEEDS= (raft core, then whole nodes)
	@$(PY) -m tests.simulation --seed $(SEED) --steps $(STEPS) --seeds $(SEEDS)

sim-mutants: ## the seeded bugs, each found from random seeds
	@$(PY) -m tests.simulation.mutants

bench: ## produce and fetch against a floor measured in the same run
	@$(PY) -m tests.bench

compat-oracle: ## fetch Apache Kafka's jars with Maven; its dump tool, console tools and broker then judge ours
	@command -v mvn >/dev/null || { echo "compat-oracle needs Maven and Java 17: sudo apt-get install maven" >&2; exit 1; }
	@bash .ci/setup dev
	@mvn -q -B -f tests/oracle/pom.xml dependency:build-classpath
	@$(PY) -m pytest -q tests/oracle

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist
