"""The bubblewrap command line of a desktop's sandbox. Pure.

The sandbox has a read-only system, an empty home and an empty /tmp in memory, its own process and network
namespaces, and no access to the run. The kernel ends everything in it together with bubblewrap, and
bubblewrap together with the thread that started it, even when that is killed.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

USER, UID = "user", 1000
HOME = f"/home/{USER}"

HOME_BYTES = 128 * 2**20
"""Size of the home. A file manager shows its free space, which has to be the same on every machine."""

RUNTIME_DIR = "/tmp/runtime"

_SYSTEM = ("/usr", "/etc", "/opt")
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_CACHES = ("/var/cache/fontconfig", "/var/lib/dbus")

ENVIRONMENT = {
    "HOME": HOME,
    "USER": USER,
    "LOGNAME": USER,
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/games",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "XDG_RUNTIME_DIR": RUNTIME_DIR,
    "XDG_SESSION_TYPE": "x11",
    "NO_AT_BRIDGE": "1",
    "GTK_THEME": "Adwaita",
    "GSETTINGS_BACKEND": "memory",
    "GDK_BACKEND": "x11",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}
"""All environment variables of a process in the sandbox."""


def sandbox_command(
    command: Sequence[str],
    *,
    readable: Sequence[Path],
    passwd: Path,
    bwrap: str = "bwrap",
    shares_network: bool = False,
    environment: dict[str, str] | None = None,
) -> list[str]:
    """Return the command line that runs ``command`` in a fresh sandbox.

    readable         folders outside the system that the command needs: the interpreter, the package
    passwd           a file that replaces the machine's /etc/passwd
    shares_network   whether the command is reachable from outside through a port
    """
    variables = ENVIRONMENT | (environment or {})
    return [
        bwrap,
        *("--die-with-parent", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
        *([] if shares_network else ["--unshare-net"]),
        *("--uid", str(UID), "--gid", str(UID), "--hostname", "desktop", "--clearenv"),
        *(part for name, value in variables.items() for part in ("--setenv", name, value)),
        *_system(),
        *("--proc", "/proc", "--dev", "/dev"),
        *("--tmpfs", "/tmp", "--dir", "/tmp/.X11-unix", "--perms", "0700", "--dir", RUNTIME_DIR),
        *("--tmpfs", "/home", "--perms", "0700", "--size", str(HOME_BYTES), "--tmpfs", HOME),
        *(part for folder in _outermost(readable) for part in ("--ro-bind", str(folder), str(folder))),
        *("--ro-bind", str(passwd), "/etc/passwd", "--chdir", HOME, "--"),
        *command,
    ]


def passwd_text() -> str:
    """Return the content of /etc/passwd: one user."""
    return f"{USER}:x:{UID}:{UID}:{USER}:{HOME}:/bin/sh\n"


def _system() -> Iterator[str]:
    for folder in _SYSTEM:
        yield from ("--ro-bind-try", folder, folder)
    for link in _LINKS:
        yield from ("--symlink", f"usr/{link}", f"/{link}")
    for cache in _CACHES:
        yield from ("--ro-bind-try", cache, cache)


def _outermost(folders: Sequence[Path]) -> list[Path]:
    """Leave out folders that the system or another folder of the list contains."""
    system = [Path(folder) for folder in _SYSTEM]
    distinct = sorted(set(folders))
    return [
        folder
        for folder in distinct
        if not any(folder.is_relative_to(other) for other in [*system, *distinct] if other != folder)
        and folder not in system
    ]
