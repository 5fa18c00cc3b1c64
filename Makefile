# smartcache: `make demo` shows it, `make test` proves it. Both set up first whatever is missing.
.DEFAULT_GOAL := help
SHELL := /bin/bash
SMARTCACHE := .venv/bin/smartcache
PYTEST := .venv/bin/pytest
# Go comes with the Python packages, and nothing else of it need be installed.
GO := $(CURDIR)/.venv/bin/go
GOFMT = "$$('$(GO)' env GOROOT)/bin/gofmt"

.PHONY: help setup demo test test-core test-endpoint test-python lint format doctor clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22

setup: ## install and build whatever is missing (seconds if nothing is)
	@setup/setup.sh

demo: setup ## run the whole main path and report; QUICK=1 for five minutes; SEED=, PORT_BASE=, RUN_DIR= as in `smartcache demo --help`
	@$(SMARTCACHE) demo $(if $(filter 1 yes true,$(QUICK)),--quick) $${SEED:+--seed "$$SEED"} $${PORT_BASE:+--port-base "$$PORT_BASE"} \
	    $${RUN_DIR:+--run-dir "$$RUN_DIR"}

test: setup test-core test-endpoint test-python ## every test

test-core: setup ## the core's and the plugin's C++ tests
	ctest --test-dir build/plugin --output-on-failure --no-tests=error

test-endpoint: setup ## the serving endpoint's Go tests
	inference/server/build.sh --test .venv/bin/python

test-python: setup ## Python tests, the end-to-end one included; ARGS= for pytest
	$(PYTEST) $(ARGS)

lint: ## formatting, linters and type checker, for every language
	@setup/setup.sh lint
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	find xcache-plugin -name '*.cc' -o -name '*.hh' | xargs clang-format --dry-run -Werror
	run-clang-tidy -quiet -p build/plugin 'xcache-plugin/' >build/clang-tidy.log 2>&1 || { grep -E 'error|warning' build/clang-tidy.log; exit 1; }
	environment=$$(inference/server/build.sh --env .venv/bin/python) && eval "$$environment" && cd inference/server && '$(GO)' vet ./...
	unformatted=$$($(GOFMT) -l inference/server) && { test -z "$$unformatted" || { echo "not formatted: $$unformatted"; exit 1; }; }

format: ## let the formatters have their way
	@setup/setup.sh lint
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .
	find xcache-plugin -name '*.cc' -o -name '*.hh' | xargs clang-format -i
	$(GOFMT) -w inference/server

doctor: ## what is present, missing or of a wrong version on this machine
	@test -x $(SMARTCACHE) || { echo "nothing is set up here yet: run \`make setup\` first"; exit 1; }
	@$(SMARTCACHE) doctor

clean: ## remove what was built and run (not what apt installed)
	rm -rf build run .venv
