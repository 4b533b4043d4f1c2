# Each target does its own set-up; `make` alone lists them.
BIN := .venv/bin
RUN ?= runs/$(shell date +%Y%m%d-%H%M%S)
CONFIG ?= configs/laptop.toml

# Test files at a time: more than processors, because many tests wait for processes of their own.
WORKERS ?= $(shell expr $$(nproc) + 2)

# Tests and benchmarks start thousands of Python processes: each reads bytecode instead of compiling again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup desktop osworld-score test-pythons bench-quick test-desktop test-ranks bench-desktops train test test-fast test-long cluster test-cluster test-losses test-wheel test-vllm test-vllm-loop check bench-actors bench-decoupling ablation chaos fuzz soak

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

setup: ## virtual environment, packages, browser (does nothing when all is there)
	@scripts/setup.sh
	@$(if $(filter setup,$(MAKECMDGOALS)),echo 'setup: all is there. Next: . .venv/bin/activate && dartrl demo')

desktop: setup ## what local desktops need: an X server, a sandbox, real applications
	@scripts/setup-desktop.sh

osworld-score: ## OSWorld's own evaluators in an environment of their own (900 MB); PARTS="pymupdf audio" for more tasks
	@scripts/setup-osworld-score.sh $(PARTS)

test-desktop: desktop osworld-score ## the tests of local desktops and of OSWorld's protocol, with real applications (600 MB)
	@scripts/setup-desktop.sh all
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/fault/test_desktop.py tests/fault/test_desktop_run.py tests/fault/test_osworld_local.py tests/fault/test_osworld_published.py tests/fault/test_osworld_evaluators.py tests/fault/test_osworld_hostile_files.py tests/fault/test_osworld_hostile_run.py tests/unit/environments/osworld/test_osworld_judging.py tests/unit/environments/osworld/test_osworld_page_getters.py tests/unit/environments/osworld/test_osworld_rescore.py $(ARGS)

bench-desktops: desktop ## desktops with faults beside desktops without; ARGS="--minutes 3 --desktops 3" and others
	$(BIN)/python -m benchmarks.desktops $(ARGS)

train: setup ## train the laptop policy; CONFIG=… RUN=… choose another file and run directory
	$(BIN)/dartrl train $(CONFIG) --run-dir $(RUN)

test-ranks: setup ## a trainer of two processes beside one of one; one of them is killed
	DARTRL_TEST_RANKS=1 $(BIN)/python -m pytest tests/ranks $(ARGS)

test: setup ## all tests but those of the other test- targets; ARGS="-n 0 tests/unit" and others
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not long and not desktop" $(ARGS)

test-long: setup ## whole runs and long series of kills: chaos, the daemon, alignment, the demo, one GPU's job
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m long tests $(ARGS)

test-fast: setup ## unit and property tests without the slow ones, with fewer examples; ARGS="-n 0 -k store" and others
	$(BIN)/python -m pytest -n logical --dist loadfile -m "not slow" --hypothesis-profile quick tests/unit tests/property $(ARGS)

test-cluster: setup ## the tests that need PostgreSQL, an S3 server and Ray, with a set-up of their own
	@scripts/setup-cluster.sh
	DARTRL_TEST_CLUSTER=1 DARTRL_TEST_RECORD=postgresql $(BIN)/python -m pytest -n 3 --dist loadfile --ignore tests/cluster/losses tests/cluster tests/unit/store tests/fault/test_store_kill.py tests/property/test_record_and_curation.py $(ARGS)

test-losses: setup ## whole runs that lose nodes, PostgreSQL, or the head of Ray with the control node
	@scripts/setup-cluster.sh
	DARTRL_TEST_CLUSTER=1 $(BIN)/python -m pytest tests/cluster/losses $(ARGS)

cluster: setup ## the laptop job on three nodes of this machine with PostgreSQL and S3, one node killed; ARGS="--run smoke"
	@scripts/setup-cluster.sh
	$(BIN)/python scripts/demo_cluster.py $(ARGS)

test-wheel: setup ## the wheel, installed into an empty environment outside of the checkout, trains there
	DARTRL_TEST_WHEEL=1 $(BIN)/python -m pytest tests/e2e/test_wheel.py $(ARGS)

test-vllm: ## vLLM for real, in an environment of its own (4 GB), with figures; says so where it cannot run
	@scripts/setup-vllm.sh || [ $$? = 77 ]
	@test ! -x .venv-vllm/bin/python || .venv-vllm/bin/python -m pytest -W default tests/vllm $(ARGS)
	@test ! -x .venv-vllm/bin/python || .venv-vllm/bin/python -m benchmarks.vllm_engine

test-vllm-loop: ## training on vLLM for ten minutes while its parts are killed: is anything lost? ARGS="--minutes 3" and others
	@scripts/setup-vllm.sh || [ $$? = 77 ]
	@test ! -x .venv-vllm/bin/python || .venv-vllm/bin/python -m benchmarks.vllm_loop $(ARGS)

test-pythons: setup ## quick tests and a training run under Python 3.12 and 3.13, where they are installed; VERSIONS=3.13
	@scripts/test_pythons.sh $(ARGS)

bench-quick: setup ## benchmarks in their shortest form: does each still measure?
	$(BIN)/python -m benchmarks.shortest $(ARGS)

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

bench-decoupling: setup ## coupled and decoupled scheduling side by side, and simulated; ARGS="--quick" and others
	$(BIN)/python -m benchmarks.simulation $(findstring --quick,$(ARGS))
	$(BIN)/python -m benchmarks.decoupling $(ARGS)

ablation: setup ## what each of the five methods of adaptive curation is worth; ARGS="--quick" and others
	$(BIN)/python -m benchmarks.ablation $(ARGS)

chaos: setup ## half an hour of faults of every kind, beside the same run without any; ARGS="--minutes 3" and others
	$(BIN)/python -m benchmarks.chaos $(ARGS)
