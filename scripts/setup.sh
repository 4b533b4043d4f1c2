#!/usr/bin/env bash
# Makes .venv (another with VENV=...) with the tested versions of everything, and sees to it that a browser is there.
# Idempotent: a stamp holds the hash of what was installed, and nothing happens while it is true.
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
    # Only the pages are used, none of its dependencies (selenium, gymnasium).
    "${pip[@]}" install -c constraints.txt --no-deps miniwob
    wanted >"$STAMP"
}

CHROMIUM=${CHROMIUM:-/usr/lib/chromium/chromium-headless-shell}

has_browser() { [ -x "$CHROMIUM" ]; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

install_browser() {
    local hint="run 'sudo apt-get install chromium-headless-shell', or name a Chromium headless shell you have: \
make setup CHROMIUM=/path, and environments.executable in the configuration"
    command -v apt-get >/dev/null || fail "no browser at $CHROMIUM and no apt-get on this machine; $hint"
    [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null ||
        fail "no browser at $CHROMIUM and no right to install one; $hint"
    echo "setup: installing chromium-headless-shell through apt" >&2
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends chromium-headless-shell >/dev/null
    has_browser || fail "apt-get installed chromium-headless-shell, yet there is nothing at $CHROMIUM; $hint"
}

# Only for tests: machines that are network namespaces. Without it they skip and say so.
install_iproute2() {
    command -v apt-get >/dev/null || return 0
    [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null || return 0
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends iproute2 >/dev/null ||
        echo "setup: iproute2 could not be installed; the tests of several hosts will be skipped" >&2
}

[ -f "$STAMP" ] && [ "$(cat "$STAMP")" = "$(wanted)" ] || install_packages
has_browser || install_browser
PATH="$PATH:/usr/sbin:/sbin" command -v ip >/dev/null || install_iproute2
