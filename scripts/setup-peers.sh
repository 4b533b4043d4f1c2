#!/usr/bin/env bash
# Installs what benchmarks/actors.py compares with: Ray, Monarch and Pykka into a virtual environment of their own
# (PEERS_PYTHON's, by default /tmp/peers), Erlang/OTP through apt where that is allowed. Idempotent. None of them is a
# dependency of the project, and what can not be installed is left out of the comparison, which says so.
set -uo pipefail
cd "$(dirname "$0")/.."

PEERS_PYTHON=${PEERS_PYTHON:-/tmp/peers/bin/python}
VENV=$(dirname "$(dirname "$PEERS_PYTHON")")
LIMIT_S=600

note() { printf 'setup-peers: %s\n' "$*" >&2; }

has() { "$PEERS_PYTHON" -c "import $1" 2>/dev/null; }

install() { # IMPORT PACKAGE...
    local import=$1
    shift
    has "$import" && return
    timeout "$LIMIT_S" nice "$PEERS_PYTHON" -m pip --disable-pip-version-check --quiet install "$@" && has "$import" ||
        note "$* could not be installed within $LIMIT_S s; the comparison goes on without"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

install_erlang() {
    command -v erlc >/dev/null && return
    as_root apt-get update -qq &&
        as_root env DEBIAN_FRONTEND=noninteractive timeout "$LIMIT_S" \
            apt-get install -y -qq --no-install-recommends erlang-base >/dev/null ||
        note "erlang-base could not be installed; the comparison goes on without OTP"
}

[ -x "$PEERS_PYTHON" ] || "${PYTHON:-python3}" -m venv "$VENV" || exit 1
install psutil psutil
install pykka 'pykka>=4.5'
install ray 'ray>=2.50'
# Monarch asks for no torch itself. Exactly this one is given to it: others bring gigabytes for GPUs.
install torch 'torch==2.13.0'
install monarch.actor 'torchmonarch>=0.7'
install_erlang
