#!/usr/bin/env bash
# Makes .venv (another with VENV=...) with the tested versions of everything, and installs the browser and the pages.
# Idempotent: a stamp holds the hash of what the packages were chosen by, and nothing is installed that is there.
set -euo pipefail
cd "$(dirname "$0")/.."

VENV=${VENV:-.venv}
STAMP="$VENV/.installed"

fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

find_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.11 python3.12 python3.13; do
        if command -v "$candidate" >/dev/null &&
            "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))'; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    fail "no Python 3.11, 3.12 or 3.13 found; install one or name it: make setup PYTHON=/path/to/python"
}

wanted() { cat pyproject.toml constraints.txt scripts/setup.sh | sha256sum | cut -d' ' -f1; }

install_packages() {
    local python
    python=$(find_python)
    echo "setup: making $VENV with $("$python" --version); this takes a few minutes once" >&2
    "$python" -m venv --clear "$VENV" ||
        fail "$python cannot make virtual environments; on Debian: apt-get install python3-venv"
    local pip=("$VENV/bin/python" -m pip --disable-pip-version-check --quiet)
    # torch first and alone: everything after it then keeps the build that was chosen here.
    "${pip[@]}" install -c constraints.txt torch
    "${pip[@]}" install -c constraints.txt -e '.[train,dev]'
    wanted >"$STAMP"
}

# The browser and the MiniWoB++ pages, as `dartrl setup` installs them anywhere else. It announces what it does.
install_browser_and_pages() {
    local browser=()
    [ -z "${CHROMIUM:-}" ] || browser=(--set "environments.executable=$CHROMIUM")
    "$VENV/bin/dartrl" setup "${browser[@]}" >/dev/null ||
        fail "something is missing, see above; a Chromium headless shell you have can be named: \
make setup CHROMIUM=/path, and environments.executable in the configuration"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# Only for tests: machines that are network namespaces. Without it they skip and say so.
install_iproute2() {
    command -v apt-get >/dev/null || return 0
    [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null || return 0
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends iproute2 >/dev/null ||
        echo "setup: iproute2 could not be installed; the tests of several hosts will be skipped" >&2
}

[ -f "$STAMP" ] && [ "$(cat "$STAMP")" = "$(wanted)" ] || install_packages
install_browser_and_pages
PATH="$PATH:/usr/sbin:/sbin" command -v ip >/dev/null || install_iproute2
