#!/usr/bin/env bash
# Prints the path of an interpreter of this version (find_python.sh 3.13), or ends with 1 where none is installed.
# A command on PATH comes first, then what pyenv has: its command on PATH answers only for the version it was told.
set -euo pipefail

WANTED=$1

is_wanted() {
    "$1" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$WANTED')" 2>/dev/null
}

for candidate in "python$WANTED" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$WANTED".*/bin/python; do
    if command -v "$candidate" >/dev/null && is_wanted "$candidate"; then
        command -v "$candidate"
        exit
    fi
done
exit 1
