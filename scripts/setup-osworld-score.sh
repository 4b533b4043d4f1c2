#!/usr/bin/env bash
# Makes .venv-osworld-score: OSWorld's own evaluators at a pinned version, and bubblewrap to run them in. About 900 MB.
# Idempotent like setup.sh.
#
#   scripts/setup-osworld-score.sh              what 347 of the 369 published tasks need
#   scripts/setup-osworld-score.sh pymupdf      and PyMuPDF, for ten more: its licence is the AGPL, so only by name
#   scripts/setup-osworld-score.sh audio        and librosa with fastdtw, for three more (400 MB)
set -euo pipefail
cd "$(dirname "$0")/.."

VENV=${OSWORLD_SCORE_VENV:-.venv-osworld-score}
STAMP="$VENV/.installed"
PYMUPDF=(pymupdf==1.26.7)
AUDIO=(librosa==0.11.0 fastdtw==0.3.4)

fail() { printf 'setup-osworld-score: %s\n' "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

install_sandbox() {
    command -v bwrap >/dev/null && return
    local hint="without bubblewrap, tasks whose evaluation runs code are left out; install the package bubblewrap"
    command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; } || {
        echo "setup-osworld-score: $hint" >&2
        return
    }
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends bubblewrap >/dev/null
}

wanted() {
    cat requirements-osworld-score.txt scripts/setup-osworld-score.sh | sha256sum | cut -d' ' -f1
}

pip() {
    "$VENV/bin/python" -m pip --disable-pip-version-check --quiet "$@"
}

install() {
    local python=${PYTHON:-python3.11}
    command -v "$python" >/dev/null || python=python3
    echo "setup-osworld-score: making $VENV with $("$python" --version); this takes a minute once" >&2
    "$python" -m venv --clear "$VENV" || fail "$python cannot make virtual environments"
    pip install --no-deps -r requirements-osworld-score.txt
    wanted >"$STAMP"
}

with() { # NAME: what some tasks need besides
    case "$1" in
        pymupdf) "$VENV/bin/python" -c 'import fitz' 2>/dev/null || pip install --no-deps "${PYMUPDF[@]}" ;;
        audio) "$VENV/bin/python" -c 'import librosa, fastdtw' 2>/dev/null || pip install "${AUDIO[@]}" ;;
        *) fail "unknown part '$1': known are pymupdf and audio" ;;
    esac
}

install_sandbox
[ -f "$STAMP" ] && [ "$(cat "$STAMP")" = "$(wanted)" ] || install
for part in "$@"; do
    with "$part"
done
