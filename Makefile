# The front door: `make chat` and `make test` work on a bare Debian 12. `make` alone lists the targets.
# CMake and Ninja do the building; this file only says what to set up and what to run.
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory
# A pipe fails with its first part.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
ARGS ?=
# Debian's own Python is the one that the set-up gives pip and pytest to.
PYTHON ?= $(firstword $(wildcard /usr/bin/python3) python3)

configure_flags := -G Ninja $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
# Configures a folder once; afterwards ninja itself sees when CMake has to run again.
configure = [ -f build/$(1)/build.ninja ] || cmake -S . -B build/$(1) $(configure_flags) $(2) --log-level=WARNING >/dev/null
# Builds targets of a folder; says nothing when nothing is to be done.
build = cmake --build build/$(1) $(2) -j $(JOBS) $(3) | { grep -v '^ninja: no work to do' || true; }
sources = find apps bench fuzz src tests \( -name '*.cc' -o -name '*.h' \) -not -path '*/build/*' | sort

.PHONY: help setup build binary models models-default chat serve test test-long bench bench-long bench-kernels fuzz install format lint clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do \
	  printf 'make %-15s %s\n' "$$name" "$$text"; done

setup: ## install the Debian packages that are missing (root or sudo); silent when none is
	@sh tools/setup.sh build

build: binary models-default ## build/release/ballast and its default model

binary: setup
	@$(call configure,release,-DCMAKE_BUILD_TYPE=Release)
	@[ -e build/release/ballast ] || echo "Building Ballast: some minutes, the first time." >&2
	@$(call build,release,--target ballast,-- --quiet)

models-default: setup ## fetch the default model into models/ (98 MB, resumes, checked)
	@$(PYTHON) tools/fetch_model.py default

models: setup ## fetch every model that the tests know (350 MB)
	@$(PYTHON) tools/fetch_model.py all

chat: build ## talk to the default model; ARGS="..." goes to ballast chat
	@build/release/ballast chat $(ARGS) || [ $$? -eq 130 ]

serve: build ## endless sessions over HTTP with the default model; ARGS="..." goes to ballast serve
	@build/release/ballast serve $(ARGS)

test: setup ## build everything and run all fast tests
	@$(call configure,release,-DCMAKE_BUILD_TYPE=Release)
	@$(call build,release)
	@$(PYTHON) tools/fetch_model.py default
	@ctest --test-dir build/release --output-on-failure -j $$(($(JOBS) + 1)) # some tests mostly wait

test-long: test ## test under address, undefined-behaviour and thread sanitizers, then tests/long/
	@$(call configure,asan,-DCMAKE_BUILD_TYPE=RelWithDebInfo -DBALLAST_SANITIZE=address$(comma)undefined)
	@$(call build,asan)
	@ctest --test-dir build/asan --output-on-failure -j $(JOBS)
	@$(call configure,tsan,-DCMAKE_BUILD_TYPE=RelWithDebInfo -DBALLAST_SANITIZE=thread)
	@$(call build,tsan)
	@ctest --test-dir build/tsan --output-on-failure -j $(JOBS)
	@for script in tests/long/*.sh; do [ ! -e "$$script" ] || { echo "$$script"; sh "$$script"; } || exit 1; done

bench: build ## tokens per second of the default model, beside this machine's limits; ARGS="..." goes to ballast bench
	@build/release/ballast bench $(ARGS)

bench-long: build ## 4 million tokens through 2,048 slots, beside 8,192: hours, resumes after a kill; results in build/long/
	@sh tools/bench_long.sh

bench-kernels: setup ## micro-benchmarks, one kernel at a time
	@$(call configure,release,-DCMAKE_BUILD_TYPE=Release)
	@$(call build,release,--target kernels_bench,-- --quiet)
	@build/release/bench/kernels_bench $(ARGS)

fuzz: setup ## run every fuzz target for FUZZ_SECONDS (60) each, with libFuzzer and sanitizers
	@sh tools/setup.sh fuzz
	@CC=clang CXX=clang++ && export CC CXX && $(call configure,fuzz,-DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DBALLAST_LIBFUZZER=ON -DBALLAST_SANITIZE=address$(comma)undefined$(comma)fuzzer-no-link -DBALLAST_WERROR=OFF)
	@$(call build,fuzz,--target fuzz/all)
	@for target in build/fuzz/fuzz/fuzz_*; do \
	  [ -f "$$target" ] && [ -x "$$target" ] || continue; \
	  name=$$(basename "$$target"); name=$${name#fuzz_}; new=build/fuzz/corpus/$$name; mkdir -p "$$new"; \
	  seeds=; [ ! -d "fuzz/corpus/$$name" ] || seeds=fuzz/corpus/$$name; \
	  echo "fuzz: $$name for $(FUZZ_SECONDS) s"; \
	  "$$target" -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 \
	    -artifact_prefix="$$new-" "$$new" $$seeds || exit 1; done

install: binary ## program, man page, completions, systemd unit, model, under PREFIX (/usr/local); DESTDIR is honoured
	@DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" PYTHON="$(PYTHON)" sh packaging/install.sh install

uninstall: ## remove what make install put under PREFIX; settings and sessions stay
	@DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" sh packaging/install.sh uninstall

format: ## format every source file in place
	@sh tools/setup.sh lint
	@$(sources) | xargs clang-format -i

lint: setup ## check the format and run clang-tidy over src/ and apps/
	@sh tools/setup.sh lint
	@$(sources) | xargs clang-format --dry-run -Werror
	@$(call configure,release,-DCMAKE_BUILD_TYPE=Release)
	@find src apps -name '*.cc' | sort | xargs -P $(JOBS) -n 1 clang-tidy -p build/release --quiet

clean: ## remove build/ (the models stay)
	@rm -rf build

comma := ,
