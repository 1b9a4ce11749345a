# Two commands: `make demo` and `make test`. `make help` lists the rest.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# Images of containers often forbid it; without bytecode, each of thousands of processes compiles all that it imports.
export PYTHONDONTWRITEBYTECODE :=

ENV ?= local
DEFAULT_SPARK := 3.5
SPARK ?= $(DEFAULT_SPARK)
RECORDS ?= month
STATE := .millrace
STAMPS := $(STATE)/stamps
BIN := .venv/bin
UV := $(STATE)/uv/bin/uv
PIP := $(UV) pip install --quiet --python
# Another Spark line has an environment of its own: its PySpark, before everything that .venv has.
LINE := $(filter-out $(DEFAULT_SPARK),$(SPARK))
LINE_PYTHON := $(if $(LINE),$(STATE)/spark-$(LINE),.venv)/bin/python
LINE_STAMP := $(LINE:%=$(STAMPS)/spark-%)
# What differs on it, tests of the default line run, too.
NEWEST_SPARK := 4.1
OTHER_SPARKS := 4.0 4.1
PYTHONS ?= 3.12 3.13
PYTHON311 := $(firstword $(wildcard $(BIN)/python3.11) python3.11)
# Programs of ours find Java and Node by themselves; CDK's own libraries want Node on the path.
WITH_NODE := PATH="$$($(BIN)/python -c 'from millrace.sandbox.programs.toolchain import node_bin_folder; print(node_bin_folder())'):$$PWD/$(BIN):$$PWD/node_modules/.bin:$$PATH"
NPM = $$($(BIN)/python -c 'from millrace.sandbox.programs.toolchain import npm_command; print(*npm_command())')

.PHONY: help setup setup-dev spark jars demo plan synth test test-all test-unit test-template test-spark test-integration test-python test-pages mutants check docs lint secrets bill audit policy policy-regions soak faults bench-core bench-formats bench-growth bench-synth bench-plan advisor restart golden release validate format lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' Makefile
	@echo; echo '  ENV=name chooses environments/name.yaml (local), RECORDS=all all 336,776 flights, KEEP=1 leaves the demo running, SPARK=4.1 takes another line.'

# ---- set-up: each step leaves a stamp, so that a second call costs nothing ----

$(UV): toolchain/uv.txt
	@echo 'set-up: uv'
	@mkdir -p $(STAMPS)
	@$(PYTHON311) -m venv $(STATE)/uv
	@$(STATE)/uv/bin/pip install --quiet --disable-pip-version-check --require-hashes -r toolchain/uv.txt
	@touch $@

$(STAMPS)/python: requirements.txt pyproject.toml | $(UV)
	@echo 'set-up: Python packages'
	@test -x $(BIN)/python || $(UV) venv --quiet --python $(PYTHON311) .venv
	@$(PIP) $(BIN)/python --require-hashes -r requirements.txt
	@$(PIP) $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

$(STAMPS)/python-dev: toolchain/dev.txt $(STAMPS)/python
	@echo 'set-up: packages of developers'
	@$(PIP) $(BIN)/python --require-hashes -r toolchain/dev.txt
	@touch $@

# Every JVM of the tests begins with what one of them has loaded.
$(STAMPS)/classes: $(STAMPS)/jars $(STAMPS)/python-dev
	@echo "set-up: Spark's classes, for tests"
	@$(BIN)/python -c 'from tests.run import share_classes; share_classes()'
	@touch $@

$(STAMPS)/java: toolchain/java.txt $(STAMPS)/python
	@$(BIN)/python -c 'from millrace.sandbox.programs.toolchain import java_home; java_home()' 2>/dev/null \
	  || { echo 'set-up: Java 17 from a wheel'; $(PIP) $(BIN)/python --require-hashes -r toolchain/java.txt; }
	@touch $@

$(STAMPS)/node: toolchain/node.txt package-lock.json $(STAMPS)/python
	@$(BIN)/python -c 'from millrace.sandbox.programs.toolchain import node_bin_folder; node_bin_folder()' 2>/dev/null \
	  || { echo 'set-up: Node from a wheel'; $(PIP) $(BIN)/python --require-hashes -r toolchain/node.txt; }
	@echo 'set-up: Node packages'
	@$(WITH_NODE) $(NPM) ci --silent --no-audit --no-fund
	@touch $@

$(STAMPS)/jars: toolchain/jars.lock.json $(STAMPS)/java
	@echo 'set-up: JVM jars'
	@$(BIN)/python -m millrace.sandbox.programs.jars
	@touch $@

# Tests write to a real OpenSearch.
$(STAMPS)/opensearch: $(STAMPS)/jars
	@echo 'set-up: OpenSearch, for tests'
	@$(BIN)/python -m millrace.sandbox.programs.jars --also opensearch
	@touch $@

$(STAMPS)/spark-%: toolchain/spark-%.txt toolchain/jars.lock.json $(STAMPS)/jars
	@echo 'set-up: Spark $*, in an environment of its own'
	@test -x $(STATE)/spark-$*/bin/python || $(UV) venv --quiet --python $(PYTHON311) $(STATE)/spark-$*
	@$(PIP) $(STATE)/spark-$*/bin/python --require-hashes -r $<
	@$(BIN)/python -c 'from site import *; print(f"import site; site.addsitedir({getsitepackages()[0]!r})")' \
	  > $$($(STATE)/spark-$*/bin/python -c 'from site import *; print(getsitepackages()[0])')/rest.pth
	@$(BIN)/python -m millrace.sandbox.programs.jars --also sandbox-$*
	@touch $@

# Whoever brings a LocalStack of their own needs none of ours.
$(STAMPS)/localstack: toolchain/localstack.txt | $(UV)
ifndef LOCALSTACK_ENDPOINT
	@echo 'set-up: LocalStack, in an environment of its own'
	@test -x $(STATE)/localstack/bin/python || $(UV) venv --quiet --python $(PYTHON311) $(STATE)/localstack
	@$(PIP) $(STATE)/localstack/bin/python --require-hashes -r toolchain/localstack.txt
	@touch $@
endif

# Glue 6.0 runs the core on Python 3.13: the same packages on another Python, with the newest Spark, as Spark 3.5 ends with 3.11.
$(STAMPS)/python-3.%: requirements.txt toolchain/dev.txt toolchain/spark-$(NEWEST_SPARK).txt $(STAMPS)/spark-$(NEWEST_SPARK)
	@echo 'set-up: Python 3.$*, in an environment of its own'
	@$(UV) venv --quiet --allow-existing --python $(INTERPRETER) $(STATE)/python-3.$*
	@$(PIP) $(STATE)/python-3.$*/bin/python --require-hashes -r requirements.txt -r toolchain/dev.txt
	@$(PIP) $(STATE)/python-3.$*/bin/python --require-hashes -r toolchain/spark-$(NEWEST_SPARK).txt
	@$(PIP) $(STATE)/python-3.$*/bin/python --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(STAMPS)/python $(STAMPS)/java $(STAMPS)/node $(STAMPS)/jars $(STAMPS)/localstack ## Install everything that a user needs
setup-dev: setup $(STAMPS)/python-dev $(STAMPS)/classes $(STAMPS)/opensearch ## ... and what developers need
spark: $(LINE_STAMP) ## Install the Spark line SPARK (4.0, 4.1) beside the default one
jars: $(STAMPS)/jars ## Fetch the JVM jars that travel as assets

# ---- what people do ----

demo: setup $(LINE_STAMP) ## Deploy the flights example to LocalStack, run its jobs, kill them, check every record
	@$(BIN)/millrace demo --records $(RECORDS) $(LINE:%=--spark %) $(if $(KEEP),--keep)

plan: $(STAMPS)/python ## Show what ENV takes: shards, workers, limits, dollars
	@$(BIN)/millrace plan --env $(ENV)

synth: setup ## Write the CloudFormation templates of ENV to cdk.out
	@$(WITH_NODE) cdk synth --quiet -c env=$(ENV)

# ---- tests: kinds are told apart by what they may touch (CONTRIBUTING.md) ----

test: setup-dev $(STAMPS)/spark-$(NEWEST_SPARK) ## What a change is trusted by, one closing line per kind; SLOW=today adds a share of the slow tests
	@$(BIN)/python -m tests.run $(or $(KINDS),unit template spark integration) --slow $(or $(SLOW),none)

test-all: setup-dev $(STAMPS)/spark-$(NEWEST_SPARK) ## Every test, the slow ones too, and the core's on each line of Spark
	@ended=0; $(BIN)/python -m tests.run unit template spark integration --slow all || ended=1; \
	for line in $(OTHER_SPARKS); do $(MAKE) test-spark SPARK=$$line || ended=1; done; exit $$ended

test-unit: $(STAMPS)/python-dev $(STAMPS)/jars $(STAMPS)/node ## No JVM, no network; SEARCH=1 looks for new examples
	@$(BIN)/python -m tests.run unit --slow $(or $(SLOW),all)

test-template: setup-dev ## Assertions on synthesised stacks
	@$(BIN)/python -m tests.run template --slow $(or $(SLOW),all)

test-spark: setup-dev $(STAMPS)/spark-$(or $(LINE),$(NEWEST_SPARK)) ## The core on a local Spark session, of the line SPARK
	@$(LINE_PYTHON) -m tests.run spark --slow $(or $(SLOW),all)

test-integration: setup-dev $(STAMPS)/spark-$(NEWEST_SPARK) ## LocalStack, Kafka, deployed jobs, kill -9
	@$(BIN)/python -m tests.run integration --slow $(or $(SLOW),all)

test-python: setup-dev ## The same on the other Pythons that this machine has: unit tests, and the core on the newest Spark
	@for version in $(PYTHONS); do \
	  found=; for each in $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version.*/bin/python python$$version; do \
	    if [ -z "$$found" ] && "$$each" -c '' 2>/dev/null; then found=$$each; fi; done; \
	  if [ -z "$$found" ]; then echo "Python $$version is not on this machine (pyenv install $$version): nothing ran on it"; continue; fi; \
	  $(MAKE) $(STAMPS)/python-$$version INTERPRETER=$$found; \
	  $(WITH_NODE) $(STATE)/python-$$version/bin/python -m tests.run $(or $(KINDS),unit spark) --slow $(or $(SLOW),none); \
	done

test-pages: setup-dev ## Pages in a headless Chromium: drawn, silent, narrow, dark, by keyboard, axe's rules
	@$(BIN)/python -m tests.pages --fetch

check: docs lint secrets policy ## Everything that can be said without running a job: lint and policy

lint: $(STAMPS)/python-dev ## ruff, format, mypy --strict, import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache | tail -n 2

secrets: $(STAMPS)/python-dev ## Look for secrets in every tracked file
	@$(BIN)/python -m tests.supply secrets

bill: $(STAMPS)/python-dev ## Write the software bill of materials (CycloneDX) to dist/
	@$(BIN)/python -m tests.supply bill

$(STATE)/audit/bin/pip-audit: toolchain/audit.txt | $(UV)
	@$(UV) venv --quiet --allow-existing --python $(PYTHON311) $(STATE)/audit
	@$(PIP) $(STATE)/audit/bin/python --require-hashes -r toolchain/audit.txt

$(STATE)/mutants/bin/cosmic-ray: toolchain/mutants.txt | $(UV)
	@$(UV) venv --quiet --allow-existing --python $(PYTHON311) $(STATE)/mutants
	@$(PIP) $(STATE)/mutants/bin/python --require-hashes -r toolchain/mutants.txt

mutants: setup-dev $(STATE)/mutants/bin/cosmic-ray ## Change one thing at a time in dangerous code; list what no test notices: AREA="fence lease", EACH=5
	@$(STATE)/mutants/bin/python -m tests.mutants $(AREA) --each $(or $(EACH),5)

audit: setup-dev $(STATE)/audit/bin/pip-audit ## Ask what is known against every pinned part; fails where nobody could be asked
	@$(BIN)/python -m tests.supply audit

policy: setup-dev ## cdk-nag, cfn-lint, checkov and rules of our own on the templates of every environment
	@$(WITH_NODE) $(BIN)/python -m tests.policy.scan

policy-regions: setup-dev ## The same in five regions of three partitions, and of an environment with the newest keys; 15 minutes
	@$(WITH_NODE) $(BIN)/python -m tests.policy.all_regions

docs: $(STAMPS)/python-dev ## The documentation as a site, in dist/docs; links checked
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet --config-file toolchain/mkdocs.yml
	@echo "dist/docs/index.html"

# ---- speed: ratios with intervals, measured in one run, never asserted ----

faults: setup-dev ## The fault suite, for BUDGET minutes (60); goes on where it was
	@$(WITH_NODE) $(BIN)/python -m tests.faults.run_within_budget --minutes $(or $(BUDGET),60)

soak: setup-dev ## An hour of a job on LocalStack: the slopes of memory, files and what is written
	@$(WITH_NODE) $(BIN)/python -m tests.faults.soak

bench-formats: setup-dev ## Rows per second of each payload format against JSON
	@$(BIN)/python -m tests.performance.decoding_by_format

bench-growth: setup-dev ## A batch's time as rows, files, partitions, shards, sinks and lag grow
	@$(BIN)/python -m tests.performance.batch_time_growth

bench-core: setup-dev $(STAMPS)/spark-$(NEWEST_SPARK) ## Landing against code by hand and the tutorials' way, on both lines, with targets (15 min)
	@$(BIN)/python -m tests.performance.kafka_landing_speed

bench-synth: setup-dev ## Synthesis of prod against an empty CDK app
	@$(WITH_NODE) $(BIN)/python -m tests.performance.synth

bench-plan: setup-dev ## plan of prod and of 1,000 streams, a simulated day
	@$(BIN)/python -m tests.performance.plan

advisor: setup-dev ## Real runs with one fault each, read by the advisor; writes docs/advisor.md
	@$(BIN)/python -m tests.advisor

restart: setup-dev ## From kill -9 to the first committed batch, twenty times
	@$(WITH_NODE) $(BIN)/python -m tests.performance.restart --times 20

release: setup-dev ## Wheel, bill of materials and digests of this version, into dist/
	@$(BIN)/python -m tests.release

golden: setup-dev ## Project, checkpoint and tables of this release, for later ones to continue from
	@$(BIN)/python -m tests.golden.save_release

validate: setup-dev ## Hold the sizing model against known answers and real runs; writes docs/validation.md
	@$(WITH_NODE) $(BIN)/python -m tests.sizing_validation

format: $(STAMPS)/python-dev ## Let ruff mend what it can
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .

lock: $(STAMPS)/java ## Resolve every pin anew: Python, LocalStack, jars, Node
	@./toolchain/lock.sh $(UV)
	@$(BIN)/python -m millrace.sandbox.programs.jars --lock
	@$(PIP) $(BIN)/python --require-hashes -r requirements.txt -r toolchain/dev.txt
	@$(BIN)/python -m millrace.infra.launch.carried_boto3
	@$(WITH_NODE) $(BIN)/python -m tests.template.write_deploy_data
	@$(WITH_NODE) $(NPM) install --package-lock-only --omit-lockfile-registry-resolved
	@$(WITH_NODE) $(NPM) install --prefix toolchain/browser --package-lock-only --omit-lockfile-registry-resolved

clean: ## Forget what the sandbox and synth made; keeps what set-up installed
	@rm -rf cdk.out cdk.out.* $(STATE)/sandbox $(STATE)/tests

.PHONY: map
map: $(STAMPS)/python-dev ## Every file of the product with what it is for; IN=etl/sinks for one folder
	@$(BIN)/python -m tests.product_files $(IN)
