# What can be done with the project. As root on Debian 12 each target installs what it needs; as a normal user it says
# what is missing.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin:/usr/sbin:/sbin

.PHONY: all setup setup-build build demo test check bench fuzz msrv public-api soak guest

all: build

# What a build and the demo need.
setup-build:
	tests/setup-judges demo
	tests/setup-rust

# What the tests need.
setup:
	tests/setup-judges
	tests/setup-rust test

build: setup-build
	cargo build --release --package extant-cli

# Builds an image from a real tree, checks, lists and extracts it; as root, mounts and compares it.
demo: build
	tests/demo

# Every test, with every judge that this machine has. CI=true: a missing judge fails.
test: setup
	cargo xtask check

# Without tests: format, layers, lints, docs.
check: setup
	cargo xtask check --fast

# Figures side by side with the rivals, in one run on this machine. Databases take part where mariadb-server and
# sysbench are installed.
bench: setup
	cargo run --release --package extant-bench -- all

# Each fuzz target for FUZZ_SECONDS (needs a nightly toolchain and cargo-fuzz).
fuzz: setup
	tests/fuzz

# Builds the workspace with the oldest Rust that Cargo.toml promises (rust-version), which rustup installs.
msrv: setup-build
	tests/msrv

# Writes the public API of each library crate to docs/api (needs a nightly toolchain; installs cargo-public-api).
public-api: setup
	tests/public-api

# The test suites over and over with new seeds, for SOAK_ROUNDS rounds.
soak: setup
	tests/soak

# Power cuts of an emulated machine with persistent memory, GUEST_ROUNDS of them (about 20 s each), and what an fsync costs
# there. As root.
guest: setup
	tests/guests
