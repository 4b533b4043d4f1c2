#!/usr/bin/env bash
# What tests/cluster needs beside scripts/setup.sh: the extra `cluster` in .venv, PostgreSQL's server through apt
# where there is none, and an S3 server in an environment of its own, .venv-s3. Does nothing when all is there.
set -euo pipefail
cd "$(dirname "$0")/.."

VENV=${VENV:-.venv}
S3_VENV=${S3_VENV:-.venv-s3}

fail() { printf 'setup-cluster: %s\n' "$*" >&2; exit 1; }

hash_of() { cat "$@" | sha256sum | cut -d' ' -f1; }

is_stamped() { [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

has_postgresql() { compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || command -v postgres >/dev/null; }

install_postgresql() {
    local hint="install PostgreSQL's server (15 or later) yourself, with initdb beside postgres"
    command -v apt-get >/dev/null || fail "there is no apt-get on this machine; $hint"
    [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null || fail "no right to install packages; $hint"
    echo "setup-cluster: installing postgresql through apt" >&2
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql >/dev/null
    has_postgresql || fail "apt-get installed postgresql, yet no program postgres is there"
}

install_extra() { # STAMP WANTED
    echo "setup-cluster: installing the extra cluster (Ray, psycopg, obstore) into $VENV" >&2
    "$VENV/bin/python" -m pip --disable-pip-version-check --quiet install -c constraints.txt -e '.[cluster]'
    printf '%s\n' "$2" >"$1"
}

# Exact versions of everything: without them pip tries boto3's for minutes.
install_s3_server() { # STAMP WANTED
    echo "setup-cluster: making $S3_VENV with an S3 server" >&2
    "$VENV/bin/python" -m venv --clear "$S3_VENV"
    "$S3_VENV/bin/python" -m pip --disable-pip-version-check --quiet install --no-deps -r requirements-s3.txt
    printf '%s\n' "$2" >"$1"
}

wanted=$(hash_of pyproject.toml constraints.txt)
is_stamped "$VENV/.cluster-installed" "$wanted" || install_extra "$VENV/.cluster-installed" "$wanted"
wanted=$(hash_of requirements-s3.txt)
is_stamped "$S3_VENV/.installed" "$wanted" || install_s3_server "$S3_VENV/.installed" "$wanted"
has_postgresql || install_postgresql
