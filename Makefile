# Two commands on a fresh machine: `make demo` runs the main job, `make test` passes the tests.
SHELL := /bin/bash
PY := .venv/bin/python
SEED ?= 1
STEPS ?= 20000
SEEDS ?= 1

.PHONY: setup demo test check attack lock wheel platforms coverage docs docs-reference proto sim sim-long sim-mutants chaos chaos-data power-loss recovery-fuzz node-fuzz roll-versions exactly-once soak bench bench-peer bench-trace bench-instructions bench-groups bench-host bench-idle bench-metadata bench-compaction spark-versions bench-spark bench-transactions bench-shares bench-start bench-pytest bench-many bench-console console-pictures ecosystem fuzz fuzz-frames compat-oracle vendor clean help

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

setup: ## make .venv and install what constraints.txt pins
	@bash .ci/setup dev

demo: ## 336,776 flights through controllers, brokers, a Kafka client and Spark, while a broker is killed (KEEP=1 leaves it up with a web console, SECURE=1: TLS, SCRAM, ACLs)
	@bash .ci/setup demo
	@$(PY) deploy/demo/run.py $(if $(KEEP),--keep) $(if $(SECURE),--secure)

test: ## set-up, check and all tests, or those of TESTS=; BARNABAS_PORTABLE=1 leaves to other systems' ways what Linux alone has
	@bash .ci/test $(TESTS)

check: ## ruff, mypy and the import law
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports

attack: ## what an intruder tried, at most ten minutes: a line for each, held or not (FINDINGS="A4 A8" JSON=1)
	@$(PY) -W ignore -m tests.attack $(FINDINGS) $(if $(JSON),--json)

lock: ## write constraints.txt anew from .venv
	@{ sed -n '/^#/p' constraints.txt; $(PY) -m pip freeze --exclude-editable --exclude barnabas; } > constraints.txt.new && mv constraints.txt.new constraints.txt

wheel: ## build the wheel, install it with the lowest and the newest dependencies into empty environments, run a cluster there
	@$(PY) -m pytest -q -m package tests/package

platforms: ## which core dependency has a wheel on which platform and Python, as the package index says: ten minutes; ARGS="--json FILE"
	@$(PY) -m tests.package.platforms $(ARGS)

coverage: ## which lines of the product the tests run, of nodes under test too: TESTS= (default all but Spark's)
	@$(PY) -m coverage erase
	@$(PY) -m coverage run -m pytest -q $(or $(TESTS),--ignore tests/spark); status=$$?; \
	  $(PY) -m coverage combine -q && $(PY) -m coverage html -q && $(PY) -m coverage report --format=total; exit $$status

docs: ## build the documentation into site/; a broken link fails
	@$(PY) -m docs.generate --check
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet --strict

docs-reference: ## write the generated pages of docs/ anew
	@$(PY) -m docs.generate

proto: ## generate the gRPC code again
	@cd proto && PATH="$$PWD/../.venv/bin:$$PATH" ../$(PY) -m grpc_tools.protoc -I . --python_out=. --pyi_out=. --grpc_python_out=. --mypy_grpc_out=quiet:. barnabas_wire/rpc/*.proto

sim: ## at least 10 million simulated events in 4 CPU minutes; with SEED= (STEPS= SEEDS=) replay those seeds
ifeq ($(origin SEED),command line)
	@$(PY) -W ignore -m tests.simulation --seed $(SEED) --steps $(STEPS) --seeds $(SEEDS)
else
	@$(PY) -W ignore -m tests.simulation.sweep --budget 220 --events-min 10000000
endif

sim-long: ## random seeds of all simulations on all cores: BUDGET= CPU time, such as 10m or 2h
	@$(PY) -W ignore -m tests.simulation.sweep --budget $(or $(BUDGET),10m)

sim-mutants: ## the planted bugs, each found with its fixed seed, hunted from a random one where that is stale: ARGS=--refresh writes new seeds down
	@$(PY) -W ignore -m tests.simulation.all_mutants $(ARGS)

chaos: ## break a real quorum in network namespaces under 50 metadata writes/s: SEED= BUDGET= (most s of faults per scenario)
	@$(PY) -m tests.chaos --seed $(SEED) $(if $(BUDGET),--budget $(BUDGET))

chaos-data: ## break real clusters under confluent-kafka and aiokafka: SEED= BUDGET= (s of faults per scenario) SCENARIOS=
	@$(PY) -m tests.chaos.data $(SCENARIOS) --seed $(SEED) $(if $(BUDGET),--budget $(BUDGET))

power-loss: ## cut the power of real nodes whose disk remembers what was not flushed: CYCLES= (of each form) SEED=
	@for form in all one lying; do $(PY) -m tests.power.cycles --form $$form --cycles $(or $(CYCLES),200) --seed $(SEED) || exit 1; done

recovery-fuzz: ## open log directories damaged in every small way: IMAGES= SEED=
	@$(PY) -m tests.log.recovery_fuzz --images $(or $(IMAGES),100000) --seed $(SEED)

node-fuzz: ## start a real cluster with one durable file damaged, in every small way, read it and judge it: IMAGES=2000 SEED=
	@$(PY) -W ignore -m tests.node_fuzz --images $(or $(IMAGES),2000) --seed $(SEED) $(ARGS)

roll-versions: ## roll a cluster from a former commit to this tree and back under load: FORMER=COMMIT SEED=
	@$(PY) -m tests.cluster.versions --commit $(or $(FORMER),2374175) --seed $(SEED)

exactly-once: ## copies by three clients while clients, brokers and coordinators are killed: RECORDS=100000 RUNS=20 SEED= CLIENT=java
	@$(PY) -m tests.cluster.exactly_once --records $(or $(RECORDS),100000) --runs $(or $(RUNS),20) --seed $(SEED) $(if $(CLIENT),--client $(CLIENT))

soak: ## churn of connections, topics, groups and producer ids; memory, descriptors and tasks must return: HOURS= (0.1 is enough to try) SEED=
	@$(PY) -m tests.soak --hours $(or $(HOURS),1) --seed $(SEED)

bench: ## produce and fetch against a floor measured in the same run
	@$(PY) -m tests.bench

bench-peer: ## Barnabas beside Apache Kafka (Maven fetches it), row by row in one run: ARGS="--rows PREFIX --rounds 3" (--list names the rows)
	@$(PY) -m tests.bench.peer --json bench-peer.json --picture bench-peer.png $(ARGS)

fuzz: ## hostile bytes into every decoder that strangers reach: BUDGET=60s; by atheris where the extra `fuzz` is installed
	@$(PY) -m tests.fuzz --budget $(or $(BUDGET),60s) $(ARGS)

fuzz-frames: ## capture anew what real clients and nodes say, for fuzz to begin with (tests/fuzz/captured.txt)
	@$(PY) -m tests.fuzz.capture

bench-trace: ## where the time of one small record goes, over three brokers: ARGS="--rate 200 --durable --idle 300"
	@$(PY) -m tests.bench.trace $(ARGS)

bench-instructions: ## instructions per request over a fixed script; --against compares two tables
	@$(PY) -m tests.bench.instructions $(ARGS)

bench-groups: ## what members of the consumer protocol feel of each other, and cost, beside Apache Kafka: ARGS="--rounds 3 --only keep"
	@$(PY) -m tests.bench.groups --json bench-groups.json $(ARGS)

bench-host: ## what many brokers cost: CPU per MB at 1 to 16, 48 at rest, a host killed under load or with 5,000 leaders: ARGS="--only cost --rounds 3"
	@$(PY) -m tests.bench.hosts --json bench-host.json $(ARGS)

bench-idle: ## p50 and CPU per record beside idle partitions
	@$(PY) -m tests.bench.idle $(ARGS)

spark-versions: ## our format in the lowest and the newest Spark, each installed into an environment of its own: VERSIONS="4.0.5 4.3.0"
	@BARNABAS_SPARK_VERSIONS="$(or $(VERSIONS),4.0.5 4.1.4 4.2.1 4.3.0)" $(PY) -m pytest -q tests/spark/test_versions.py

bench-spark: ## Spark's reads and writes through our format and through its own Kafka connector, in turn: ARGS="--rows PREFIX --rounds 1"
	@$(PY) -m tests.bench.spark --json bench-spark.json $(ARGS)

bench-transactions: ## commits, reads of committed data and copies beside Apache Kafka: ARGS="--rows PREFIX --rounds 3"
	@$(PY) -m tests.bench.transactions --json bench-transactions.json $(ARGS)

bench-shares: ## records of a share group that are accepted one by one, locks that end, delayed records, beside Apache Kafka: ARGS="--rows PREFIX --rounds 3"
	@$(PY) -m tests.bench.shares --json bench-shares.json $(ARGS)

bench-compaction: ## MB/s cleaned, memory, and the p99 of produce without and with a cleaner at work
	@$(PY) -m tests.bench.compaction

bench-start: ## CPU and time to the first acknowledged record, of dev, later clusters of a process, a rival and Kafka; ARGS="--against TREE"
	@$(PY) -m tests.bench.start $(ARGS)

bench-pytest: ## 50 tests with a topic and a group each, in process and on 1 and 3 nodes; brokers in one process: ARGS="--against TREE"
	@$(PY) -m tests.bench.pytest_suite $(ARGS)

bench-many: ## 10,000 replicas on a broker: memory, CPU at rest, restart, deletion; 5,000 leaders killed at once
	@$(PY) -m tests.bench.many $(ARGS)

bench-console: ## what each page of the console takes with 1,000 topics and 50 groups, and the console's memory: ARGS="--rounds 100 --json FILE"
	@$(PY) -m tests.bench.console $(ARGS)

bench-metadata: ## 1 000, 10 000 and 100 000 partitions: creations, the cost of one change, snapshot, load, failover, memory
	@$(PY) -m tests.bench.metadata

ecosystem: ## the systems that stand on a Kafka, full forms: Kafka Streams, Connect, MirrorMaker 2, MariaDB, under kills; an operator's day; a browser
	@bash .ci/setup ecosystem
	@export BARNABAS_ECOSYSTEM_FULL=1; status=0; \
	  $(PY) -m pytest -q -m ecosystem tests/ecosystem tests/admin/console || status=$$?; \
	  $(PY) -m pytest -q tests/broker/simulation tests/compat/confluent/test_transactions.py || status=$$?; \
	  $(PY) -m pytest -q tests/spark/test_exactly_once.py tests/spark/test_session.py tests/spark/test_batch_session.py || status=$$?; \
	  BARNABAS_ACL_SETS=100000 $(PY) -m pytest -q tests/metadata_quorum/test_authorizer.py || status=$$?; \
	  exit $$status

compat-oracle: ## fetch Apache Kafka's jars with Maven; its dump tool, console tools and broker then judge ours
	@command -v mvn >/dev/null || { echo "compat-oracle needs Maven and Java 17: sudo apt-get install maven" >&2; exit 1; }
	@bash .ci/setup dev
	@mvn -q -B -f tests/oracle/pom.xml dependency:build-classpath
	@$(PY) -m pytest -q tests/oracle

console-pictures: ## the pictures of docs/console-pictures.md, by Chromium: five minutes; ARGS="--png DIR" takes every screen, and leaves the docs alone
	@$(PY) -m tests.admin.console.pictures $(ARGS)

vendor: ## write the console's foreign files anew from npm, checked against their hashes
	@bash .ci/vendor

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage* htmlcov site dist
