# The two commands that matter are `make bench` and `make test`; `make help` lists the rest.
# Every target installs what it lacks (scripts/setup) and builds outside the checkout (scripts/env).
# Cargo has two profiles (Cargo.toml): dist for the program that is shipped, release for all else. The compiler cache, which
# scripts/setup installs, compiles RocksDB once for both.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Further arguments of `diorite bench large-dataset`, for example BENCH_ARGS='--scale 20GB'.
BENCH_ARGS ?=
# How long each fuzz target runs.
FUZZ_SECONDS ?= 600
# The crates that fuzz targets call into; the lints compile these doors too.
FUZZING := $(patsubst %,diorite-%/fuzzing,admin cluster cql model node query replica rpc)
# How long `make torture` goes on.
MINUTES ?= 30
# How often `make test-upgrade` goes back.
ROUNDS ?= 3
# Further arguments of the client tests, for example PYTEST_ARGS='-k gocql'.
PYTEST_ARGS ?=

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|'

.PHONY: build
build: ## build the diorite binary
	@scripts/setup build
	@. scripts/env; cargo build --profile dist --locked --package diorite --bin diorite
	@. scripts/env; echo "built $$CARGO_TARGET_DIR/dist/diorite"

.PHONY: bench
bench: ## build; load, read and write a large data set on four nodes, add and lose one; report under bench-results/
	@scripts/setup bench
	@. scripts/env; cargo build --profile dist --locked --package diorite --bin diorite
	@. scripts/env; "$$CARGO_TARGET_DIR/dist/diorite" bench large-dataset $(BENCH_ARGS)

.PHONY: test
test: ## run every test: the crates' own, then real drivers and cqlsh against a real server
	@scripts/setup test
	@scripts/test $(PYTEST_ARGS)

.PHONY: torture
torture: ## kill, pause and partition clusters of real processes for MINUTES (30), and judge what clients saw
	@scripts/setup test
	@. scripts/env; DIORITE_TORTURE_MINUTES=$(MINUTES) cargo test --release --locked --package diorite --test torture -- --nocapture long:: rows:: power::

.PHONY: test-upgrade
test-upgrade: ## upgrade clusters of real processes from the release before, ROUNDS (3) times back and forth, under load
	@scripts/setup test
	@. scripts/env; before=$$(scripts/release-before); DIORITE_BEFORE=$$before DIORITE_UPGRADE_ROUNDS=$(ROUNDS) cargo test --release --locked --package diorite --test torture -- --nocapture upgrade::

.PHONY: lint
lint: ## formatting, clippy, documentation, dependency rules
	@scripts/setup lint
	@. scripts/env; cargo fmt --all --check
	@. scripts/env; cargo clippy --release --locked --workspace --all-targets --features "$(FUZZING)" -- --deny warnings
	@. scripts/env; RUSTDOCFLAGS='--deny warnings --allow rustdoc::private-intra-doc-links' cargo doc --release --locked --workspace --no-deps --document-private-items
	@. scripts/env; cargo deny --locked check licenses bans sources

.PHONY: advisories
advisories: ## check dependencies against the RustSec database (needs GitHub)
	@scripts/setup lint
	@. scripts/env; cargo deny --locked check advisories

.PHONY: fmt
fmt: ## format the code
	@scripts/setup lint
	@. scripts/env; cargo fmt --all

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZ_SECONDS (600)
	@scripts/setup fuzz
	@scripts/fuzz $(FUZZ_SECONDS)

.PHONY: clean-data
clean-data: ## delete bench-results/: reports, and the data of runs that were interrupted
	rm -rf bench-results
