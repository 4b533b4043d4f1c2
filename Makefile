# Each target does its own set-up; `make` alone lists them.
BIN := .venv/bin
RUN ?= runs/$(shell date +%Y%m%d-%H%M%S)
CONFIG ?= configs/laptop.toml

.PHONY: help setup train test check bench-actors fuzz soak

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

setup: ## virtual environment, packages, browser (does nothing when all is there)
	@scripts/setup.sh

train: setup ## train the laptop policy; CONFIG=… RUN=… choose another file and run directory
	$(BIN)/dartrl train $(CONFIG) --run-dir $(RUN)

test: setup ## all tests
	$(BIN)/python -m pytest

check: setup ## formatting, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fuzz: setup ## a million forged frames into every port of a running system
	$(BIN)/python -m benchmarks.fuzz

soak: setup ## 100,000 restarts; nothing may grow
	$(BIN)/python -m benchmarks.soak

bench-actors: setup ## the actors beside Thespian, Ray, Monarch, Pykka and OTP; ARGS="--quick" and others
	scripts/setup-peers.sh
	$(BIN)/python -m benchmarks.actors $(ARGS)
