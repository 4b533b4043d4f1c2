#!/usr/bin/env bash
# What local desktops need beside scripts/setup.sh: an X server, a window manager, a sandbox and applications
# through apt (about 70 MB), python-xlib and mss through pip. Does nothing when all is there.
#     scripts/setup-desktop.sh all     also the applications of all tasks and of the tests (about 600 MB)
set -euo pipefail
cd "$(dirname "$0")/.."

PACKAGES=(bubblewrap xvfb openbox mousepad galculator pcmanfm fonts-dejavu-core)
PROGRAMS=(bwrap Xvfb openbox mousepad galculator pcmanfm)
if [ "${1:-}" = all ]; then
    PACKAGES+=(libreoffice-calc libreoffice-writer libreoffice-impress libreoffice-gtk3 gimp vlc chromium socat bc libglib2.0-bin)
    PROGRAMS+=(localc lowriter loimpress gimp vlc chromium socat bc gsettings)
fi

fail() { printf 'setup-desktop: %s\n' "$*" >&2; exit 1; }

is_missing() {
    local program
    for program in "${PROGRAMS[@]}"; do
        command -v "$program" >/dev/null || return 0
    done
    return 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

if is_missing; then
    hint="install these packages yourself: ${PACKAGES[*]}"
    command -v apt-get >/dev/null || fail "there is no apt-get on this machine; $hint"
    [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null || fail "no right to install packages; $hint"
    echo "setup-desktop: installing ${PACKAGES[*]} through apt" >&2
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${PACKAGES[@]}" >/dev/null
    ! is_missing || fail "apt-get installed ${PACKAGES[*]}, yet one of ${PROGRAMS[*]} is not there"
fi
.venv/bin/python -c 'import mss, Xlib' 2>/dev/null ||
    .venv/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt -e '.[desktop]'
