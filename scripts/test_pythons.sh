#!/usr/bin/env bash
# Runs the quick tests and one training run under the other versions of Python that pyproject.toml promises, each in a
# virtual environment of its own: VERSIONS="3.12 3.13". A version that is not installed is named as not run.
set -uo pipefail
cd "$(dirname "$0")/.."

TESTS=(tests/unit tests/fault/test_otp_conformance_processes.py
    tests/e2e/test_training_run.py::test_a_first_signal_drains_and_a_resumed_run_trains_nothing_twice)
# Tests that mostly compute with torch, and those of the benchmarks: the training run shows that torch works.
LEFT_OUT=(--ignore=tests/unit/{benchmarks,exploration,grounding,imitation,inference,policy,training})
read -ra VERSIONS <<<"${VERSIONS:-3.12 3.13}"
NO_TESTS=5
failed=0

# Of a second try a version may have nothing to run; a first one that runs nothing has failed.
is_passed() { [ "$1" = 0 ] || { [ "$1" = "$NO_TESTS" ] && [[ "$2" = *--last-failed* ]]; }; }

# Each environment is made by one process, so all are made at the same time; `make setup` has installed the rest.
declare -A setups
for version in "${VERSIONS[@]}"; do
    if ! python=$(scripts/find_python.sh "$version"); then
        echo "NOT RUN: Python $version is not installed"
        continue
    fi
    VENV=.venv-$version PYTHON=$python scripts/setup.sh &
    setups[$version]=$!
done

for version in "${VERSIONS[@]}"; do
    [ -n "${setups[$version]:-}" ] || continue
    # The slow tests and the search for rare examples are in `make test`; these show what another version breaks.
    wait "${setups[$version]}" &&
        ".venv-$version/bin/python" -m pytest -n 2 --dist loadfile -q -o cache_dir=".pytest_cache/$version" \
            -m "not slow" --hypothesis-profile quick "${LEFT_OUT[@]}" "${TESTS[@]}" "$@"
    is_passed $? "$*" || failed=1
done
exit "$failed"
