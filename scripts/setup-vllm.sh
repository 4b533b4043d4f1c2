#!/usr/bin/env bash
# Makes .venv-vllm: vLLM's CPU build, at the versions it was tested with, and this project. About 4 GB.
# Idempotent like setup.sh. Ends with 77 where this machine cannot run it, and says what is missing.
# With a GPU none of this is needed: pip install 'dartrl[train,vllm]'.
set -euo pipefail
cd "$(dirname "$0")/.."

VENV=${VLLM_VENV:-.venv-vllm}
STAMP="$VENV/.installed"
SKIPPED=77
NEEDED_GB=6

fail() { printf 'setup-vllm: %s\n' "$*" >&2; exit 1; }
skip() { printf '\nsetup-vllm: SKIPPED, nothing of vLLM is tested: %s\n\n' "$*" >&2; exit "$SKIPPED"; }

refuse_other_machines() {
    [ "$(uname -sm)" = "Linux x86_64" ] || skip "the CPU build is for Linux on x86_64, this is $(uname -sm)"
    grep -qw avx512f /proc/cpuinfo || grep -qw avx2 /proc/cpuinfo ||
        skip "this processor has neither avx512f nor avx2, which the CPU build of vLLM needs"
    command -v setpriv >/dev/null || skip "setpriv (util-linux) is missing; engines could outlive their actors"
}

has_room() {
    local free_gb
    free_gb=$(df --output=avail -BG . | tail -1 | tr -dc 0-9)
    [ "$free_gb" -ge "$NEEDED_GB" ] || skip "$NEEDED_GB GB are needed for $VENV, ${free_gb} GB are free"
}

wanted() {
    cat requirements-vllm.txt scripts/setup-vllm.sh scripts/torchvision_on_cpu.py | sha256sum | cut -d' ' -f1
}

install() {
    has_room
    local python=${PYTHON:-python3.11}
    command -v "$python" >/dev/null || python=python3
    echo "setup-vllm: making $VENV with $("$python" --version); this takes some minutes once" >&2
    "$python" -m venv --clear "$VENV" || fail "$python cannot make virtual environments"
    local pip=("$VENV/bin/python" -m pip --disable-pip-version-check --quiet)
    # torch first and alone: the build that is chosen here is the one that stays.
    "${pip[@]}" install "$(grep ^torch== requirements-vllm.txt)"
    "${pip[@]}" install --no-deps -r requirements-vllm.txt
    "${pip[@]}" install --no-deps -e . "$(grep ^miniwob== constraints.txt)"
    let_torchvision_be_imported
    wanted >"$STAMP"
}

let_torchvision_be_imported() {
    local site
    site=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    cp scripts/torchvision_on_cpu.py "$site/"
    echo 'import torchvision_on_cpu' >"$site/torchvision_on_cpu.pth"
}

refuse_other_machines
[ -f "$STAMP" ] && [ "$(cat "$STAMP")" = "$(wanted)" ] || install
