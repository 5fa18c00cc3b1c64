# smartcache: `make demo` shows it, `make test` proves it. Both set up first whatever is missing.
.DEFAULT_GOAL := help
SHELL := /bin/bash
SMARTCACHE := .venv/bin/smartcache
PYTEST := .venv/bin/pytest
# Go comes with the Python packages, and nothing else of it need be installed.
GO := $(CURDIR)/.venv/bin/go
GOFMT = "$$('$(GO)' env GOROOT)/bin/gofmt"

.PHONY: help setup built demo bench evaluate test test-core test-endpoint test-python test-sanitize test-xrootd6 fuzz deb lint format doctor clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22

setup: ## install and build whatever is missing (seconds if nothing is)
	@setup/setup.sh

# The tests and benchmarks of core and plugin too.
built:
	@setup/setup.sh tests

demo: setup ## run the whole main path and report; QUICK=1 for five minutes; SEED=, PORT_BASE=, RUN_DIR= as in `smartcache demo --help`
	@$(SMARTCACHE) demo $(if $(filter 1 yes true,$(QUICK)),--quick) $${SEED:+--seed "$$SEED"} $${PORT_BASE:+--port-base "$$PORT_BASE"} \
	    $${RUN_DIR:+--run-dir "$$RUN_DIR"}

test: test-core test-endpoint test-python ## every test

test-core: built ## the core's and the plugin's C++ tests
	ctest --test-dir build/plugin --output-on-failure --no-tests=error

test-endpoint: setup ## the serving endpoint's Go tests
	inference/server/build.sh --test .venv/bin/python

test-python: ## Python tests, the end-to-end one included, a process for each of up to four cores; ARGS= for pytest (-n 0: in one)
	@setup/setup.sh tests deb
	$(PYTEST) --numprocesses logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder $(ARGS)

# What is not part of `make test`, since each builds core and plugin once more.
test-sanitize: setup ## the core under AddressSanitizer + UBSan and ThreadSanitizer, and the plugin in a real xrootd under UBSan
	xcache-plugin/sanitize.sh

test-xrootd6: setup ## the plugin's tests with a current XRootD, built from source the first time; ARGS= for pytest
	@setup/setup.sh xrootd6
	nice setup/xrootd6.sh
	cmake -S xcache-plugin -B build/plugin-xrootd6 -G Ninja -DCMAKE_BUILD_TYPE=Release -DSMARTCACHE_TESTS=OFF \
	    -DXRootD_DIR='$(CURDIR)/build/xrootd6/lib/cmake/XRootD'
	cmake --build build/plugin-xrootd6
	SMARTCACHE_XROOTD='$(CURDIR)/build/xrootd6' SMARTCACHE_PLUGIN='$(CURDIR)/build/plugin-xrootd6/libXrdPfcSmartCache.so' \
	    $(PYTEST) xcache-plugin/plugin/tests $(ARGS)

fuzz: SECONDS_EACH = $(if $(filter command,$(firstword $(origin SECONDS))),$(SECONDS),30)
fuzz: setup ## libFuzzer on every parser of the plugin, Hypothesis on those of the collector; SECONDS=30 each
	@setup/setup.sh fuzz
	cmake -S xcache-plugin -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER=clang++-14 -DSMARTCACHE_FUZZ=ON \
	    -DSMARTCACHE_PLUGIN=OFF -DSMARTCACHE_TESTS=OFF -DSMARTCACHE_SANITIZE=address,undefined
	cmake --build build/fuzz
	SECONDS_EACH=$(SECONDS_EACH) ctest --test-dir build/fuzz --output-on-failure --no-tests=error
	SMARTCACHE_FUZZ_SECONDS=$(SECONDS_EACH) $(PYTEST) ingestion/tests/test_any_bytes.py

deb: setup ## the plugin as a Debian package, in build/deb/
	@setup/setup.sh deb
	cpack -G DEB --config build/plugin/CPackConfig.cmake -B build/deb

bench: built ## measure what a decision costs, what the endpoint serves, what collector and Spark can take (an hour; leave the machine alone meanwhile); ARGS= as in `smartcache bench --help`
	@$(SMARTCACHE) bench $(ARGS)

evaluate: setup ## every policy on every Parquet trace of a folder: TRACES=DIR OUT=DIR; ARGS= as in `smartcache evaluate-policies --help`
	@test -n '$(TRACES)' -a -n '$(OUT)' || { echo 'say which: make evaluate TRACES=DIR OUT=DIR'; exit 2; }
	@$(SMARTCACHE) evaluate-policies '$(TRACES)' --output '$(OUT)' $(ARGS)

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

doctor: ## what is present, missing, of a wrong version or older than its sources on this machine
	@test -x $(SMARTCACHE) || { echo "nothing is set up here yet: run \`make setup\` first"; exit 1; }
	@$(SMARTCACHE) doctor

clean: ## remove what was built and run (not what apt installed)
	rm -rf build run .venv
