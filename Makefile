# Two commands matter: `make run` and `make test`. Each sets up all it needs in .venv, by the hashed lock files.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Tests often wait for a program or for the disk: three workers keep two cores busy.
WORKERS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) * 3 / 2 )))
# make test RANDOM=1 shuffles the tests and prints the seed; SEED=123 repeats that order.
ORDER  := $(if $(SEED),-p randomly --randomly-seed=$(SEED),$(if $(RANDOM),-p randomly))
PYTEST := -m pytest -q -n $(WORKERS) $(ORDER)
# make test EXEC=1 starts every program as people do, and not in a fork of one that has imported the package.
ifdef EXEC
export TANDEM_TEST_EXEC := 1
endif
# make test PICTURES=1 keeps pictures of the dashboard in test-artifacts/.
ifdef PICTURES
export TANDEM_TEST_PICTURES := 1
endif
# Each broker that a test starts would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run house faults test covered check static quick format torture bench bench-large bench-postgres test-clients test-gsd test-postgres test-teams test-pythons lock docs clean chromium

help:  ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

# $(call set-up,LOCK,OPTIONS): an environment with this package and all that the lock file names. pip reads the index page of
# one package after the other, so two halves at once take little more than half the time. The lock names every dependency.
define set-up
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; say make PYTHON=python3.11")'
@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
@echo "setting up $(VENV) from $(1)"
@awk -v folder=$(VENV) '/^[A-Za-z0-9]/ { half = 1 - half } { print > (folder "/half-" half ".lock") }' $(1)
@$(PIP) install $(2) --no-deps --require-hashes -r $(VENV)/half-0.lock & other=$$!; \
	$(PIP) install $(2) --no-deps --require-hashes -r $(VENV)/half-1.lock; code=$$?; wait $$other && exit $$code
@$(PIP) install --no-deps --no-build-isolation --editable .
endef

# A run needs the runtime lock. The developer's lock holds that and more, so its set-up serves for both.
$(VENV)/run.stamp: requirements.lock pyproject.toml
	$(call set-up,requirements.lock)
	@touch $@

# Most modules of the developer's tools are never imported: they are compiled when they are.
$(VENV)/dev.stamp: requirements-dev.lock requirements.lock pyproject.toml
	$(call set-up,requirements-dev.lock,--no-compile)
	@touch $(VENV)/run.stamp $@

run: $(VENV)/run.stamp  ## set up and start the broker for this repository
	@exec $(BIN)/gsd-review-broker $(ARGS)

test:  ## set up and run every check
	@$(MAKE) --no-print-directory -j2 $(VENV)/dev.stamp chromium
	@$(MAKE) --no-print-directory -j2 static covered

# Otherwise every worker would compile all modules and tests for itself at the same time: 16 seconds of processor time each,
# instead of 5. What cannot be collected is told by the tests' own run.
$(VENV)/compiled.stamp: $(VENV)/dev.stamp
	@$(BIN)/python -m pytest --collect-only -qq > /dev/null 2>&1 || true
	@touch $@

covered: $(VENV)/compiled.stamp
	@$(BIN)/coverage erase
	@$(BIN)/coverage run $(PYTEST) -m "not torture and not clients and not gsd"
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --fail-under=100

check: $(VENV)/dev.stamp  ## the inner loop: static checks, unit tests and quick integration tests, in a minute
	@$(MAKE) --no-print-directory -j2 static quick

static: $(VENV)/dev.stamp  ## format, lint, import contracts, types, and the size of the house
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/python -m tests.house --check
	@$(BIN)/lint-imports > $(VENV)/imports.log || { cat $(VENV)/imports.log; exit 1; }
	@$(BIN)/basedpyright

quick: $(VENV)/dev.stamp
	@$(BIN)/python -m pytest -q -n 2 $(ORDER) -m "not slow and not postgres" tests/unit tests/contract tests/integration

chromium:  ## find or install Chromium, for the tests in a browser
	@sh tests/browser/chromium.sh

torture: $(VENV)/dev.stamp  ## the long fault runs (seeds are printed)
	@$(BIN)/python -m pytest -m torture --timeout=3600 -s
	@$(BIN)/python -m pytest tests/unit --timeout=3600 --hypothesis-profile=searching

# The programs themselves come from npm only when asked for: make test-clients INSTALL=1
CLIENTS := $(CURDIR)/.clients
CLIENT_PACKAGES := @openai/codex @anthropic-ai/claude-code@latest @google/gemini-cli opencode-ai

test-clients: $(VENV)/dev.stamp  ## the pool and the installers with the real agents that are found (INSTALL=1 fetches them)
	@test -z "$(INSTALL)" || npm install --no-audit --no-fund --silent --prefix $(CLIENTS) $(CLIENT_PACKAGES)
	@# Not in memory: the sandbox of Codex has a /dev of its own, in which nothing under /dev/shm exists.
	@TMPDIR="$${TMPDIR:-/tmp}" TANDEM_CLIENTS="$${TANDEM_CLIENTS:-$(CLIENTS)/node_modules/.bin}" $(BIN)/python -m pytest -m clients --timeout=300

test-gsd: $(VENV)/dev.stamp  ## the overlay with the real packages of GSD, which npm fetches (needs npm and the network once)
	@sh tests/acceptance/gsd/fetch.sh "$${TANDEM_GSD:-$(CURDIR)/.gsd-packages}"
	@TANDEM_GSD="$${TANDEM_GSD:-$(CURDIR)/.gsd-packages}" TANDEM_CLIENTS="$${TANDEM_CLIENTS:-$(CLIENTS)/node_modules/.bin}" \
		$(BIN)/python -m pytest -q -n 2 -m gsd --timeout=300 tests/acceptance/gsd

faults: $(VENV)/dev.stamp  ## put each of a hundred faults in, one at a time, and see that the tests catch it (ARGS: words of their names)
	@$(BIN)/python -m tests.faults $(ARGS)

bench: $(VENV)/dev.stamp  ## the benchmarks, as ratios: a table, and JSON in bench-results/
	@$(BIN)/python -m benchmarks

bench-large: $(VENV)/dev.stamp  ## the same questions to 1,000 and to 1,000,000 reviews (some minutes, 4 GB)
	@$(BIN)/python -m benchmarks.large $(ARGS)

bench-postgres: $(VENV)/dev.stamp  ## PostgreSQL beside SQLite, and its growth to 100,000 reviews
	@$(BIN)/python -m benchmarks.postgres $(ARGS)

test-postgres: $(VENV)/dev.stamp  ## every test that runs on PostgreSQL (BROKER_TEST_POSTGRES=postgresql://… uses that server)
	@$(BIN)/python $(PYTEST) -m postgres tests/integration tests/acceptance/postgres

test-teams: $(VENV)/dev.stamp  ## several brokers on one PostgreSQL: 64 clients, kills, cut connections, nginx (some minutes; prints what it measured)
	@$(BIN)/python -m pytest -q -s -m torture --timeout=3600 tests/acceptance/postgres

test-pythons: requirements-dev.lock  ## the tests on every supported Python found (3.11, 3.12, 3.13)
	@sh tests/on-every-python.sh

house: $(VENV)/dev.stamp  ## how large the house is: modules, lines, names, and the modules of two journeys
	@$(BIN)/python -m tests.house --journeys

docs: $(VENV)/dev.stamp  ## regenerate the generated pages and snapshots
	@$(BIN)/python -m tests.contract

format: $(VENV)/dev.stamp  ## format the code and fix what ruff can fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock:  ## resolve the lock files again (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --group build pyproject.toml -o requirements.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --group dev pyproject.toml -c requirements.lock -o requirements-dev.lock

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .coverage bench-results test-artifacts
