#!/usr/bin/env bash
# Runs the tests that start no training run under the other versions of Python that pyproject.toml promises, each in
# a virtual environment of its own. A version that is not installed is named as not run.
set -uo pipefail
cd "$(dirname "$0")/.."

TESTS=(tests/unit tests/property tests/fault/test_elixir_conformance_processes.py
    tests/fault/test_otp_conformance_processes.py)
failed=0

for version in 3.12 3.13; do
    if ! python=$(scripts/find_python.sh "$version"); then
        echo "NOT RUN: Python $version is not installed"
        continue
    fi
    report=${JUNIT_FOLDER:+--junitxml=$JUNIT_FOLDER/python-$version.xml}
    VENV=.venv-$version PYTHON=$python scripts/setup.sh &&
        ".venv-$version/bin/python" -m pytest -n 2 --dist loadfile -q ${report:+"$report"} "${TESTS[@]}" "$@" ||
        failed=1
done
exit "$failed"
