"""The bubblewrap sandbox of a desktop: its command line, its start and its end.

The sandbox has a read-only system, an empty home and an empty /tmp in memory, its own process and network
namespaces, and no access to the run. The kernel ends everything in it together with bubblewrap, and
bubblewrap together with the thread that started it, even when the process of this thread is killed.
"""

import asyncio
import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

USER, UID = "user", 1000
HOME = f"/home/{USER}"

PASSWD = f"{USER}:x:{UID}:{UID}:{USER}:{HOME}:/bin/sh\n"
"""Content of /etc/passwd: one user."""

HOME_BYTES = 128 * 2**20
"""Size of the home. A file manager shows its free space, which has to be the same on every machine."""

RUNTIME_DIR = "/tmp/runtime"

LOG = "guest.log"
"""Name of the file with what the command in the sandbox writes to stderr."""

_SYSTEM = ("/usr", "/etc", "/opt")
_SYMLINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
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
    shares_network: bool = False,
    environment: Mapping[str, str] | None = None,
    tmp_bytes: int | None = None,
    as_uid: int | None = None,
) -> list[str]:
    """Return the command line that runs ``command`` in a new sandbox.

    readable         folders and files outside of the system that the command needs: the interpreter, the
                     package
    passwd           a file that replaces the machine's /etc/passwd
    shares_network   whether the sandbox shares this computer's network, so that its ports can be reached
    environment      environment variables in addition to `ENVIRONMENT`
    tmp_bytes        size of the sandbox's /tmp; None for half of the machine's memory
    as_uid           uid that runs the command, for a caller that is root and wants limits of resources: the
                     kernel does not limit root, not even under another uid in a user namespace. None for a
                     user namespace with the uid `UID`
    """
    variables = ENVIRONMENT | dict(environment or {})
    own_user = ("--unshare-user", "--uid", str(UID), "--gid", str(UID))
    return [
        "bwrap",
        *("--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
        *([] if shares_network else ["--unshare-net"]),
        *(own_user if as_uid is None else ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")),
        *("--hostname", "desktop", "--clearenv"),
        *(part for name, value in variables.items() for part in ("--setenv", name, value)),
        *_system(),
        *("--proc", "/proc", "--dev", "/dev"),
        *([] if as_uid is None else ["--perms", "0777"]),
        *(["--size", str(tmp_bytes)] if tmp_bytes else []),
        *("--tmpfs", "/tmp", "--dir", "/tmp/.X11-unix", "--perms", "0700", "--dir", RUNTIME_DIR),
        *("--tmpfs", "/home", "--perms", "0700" if as_uid is None else "0777"),
        *("--size", str(HOME_BYTES), "--tmpfs", HOME),
        *(part for path in _outermost(readable) for part in _readable(path)),
        *("--ro-bind", str(passwd), "/etc/passwd", "--chdir", HOME, "--"),
        *([] if as_uid is None else _changing_user(as_uid)),
        *command,
    ]


def _readable(path: Path) -> tuple[str, ...]:
    """Return the arguments that make a folder or a file readable in the sandbox.

    ``--dir`` makes its parent folder for all users; bubblewrap alone would make the parent for root only."""
    return "--dir", str(path.parent), "--ro-bind", str(path), str(path)


def _changing_user(uid: int) -> tuple[str, ...]:
    return ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs", "--")


async def start_sandbox(
    command: Sequence[str],
    scratch: Path,
    *,
    readable: Sequence[Path],
    environment: Mapping[str, str] | None = None,
    shares_network: bool = False,
    has_pipes: bool = False,
) -> asyncio.subprocess.Process:
    """Start ``command`` in a fresh sandbox, in which this Python interpreter is readable.

    scratch     a folder for this sandbox alone, with its `LOG`
    readable    further folders that the command needs
    has_pipes   whether the caller writes to stdin and reads stdout; otherwise stdout goes to the log
    """
    scratch.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - one local folder, microseconds
    passwd = scratch / "passwd"
    passwd.write_text(PASSWD)
    line = sandbox_command(
        command,
        readable=[*readable, Path(sys.prefix), Path(sys.base_prefix)],
        passwd=passwd,
        shares_network=shares_network,
        environment=environment,
    )
    with (scratch / LOG).open("wb") as log:
        return await asyncio.create_subprocess_exec(
            *line,
            stdin=asyncio.subprocess.PIPE if has_pipes else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE if has_pipes else log,
            stderr=log,
            start_new_session=True,
        )


def kill(process: asyncio.subprocess.Process) -> None:
    """Kill all processes of a sandbox without waiting; does nothing when the sandbox has ended."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()


async def await_exit(process: asyncio.subprocess.Process, within_s: float = 5.0) -> None:
    """Wait until a sandbox has ended, and read its stdout to the end; after ``within_s``, close its pipes.

    asyncio does not close a stdout that is not read to the end. If the event loop is closed while a pipe is
    open, the garbage collector closes the pipe and prints "Event loop is closed"."""
    try:
        async with asyncio.timeout(within_s):
            await process.wait()
            if process.stdout is not None:
                await process.stdout.read()
    except TimeoutError:
        process._transport.close()  # type: ignore[attr-defined]  # asyncio has no other way


def _system() -> Iterator[str]:
    for folder in _SYSTEM:
        yield from ("--ro-bind-try", folder, folder)
    for name in _SYMLINKS:
        yield from ("--symlink", f"usr/{name}", f"/{name}")
    for cache in _CACHES:
        yield from ("--ro-bind-try", cache, cache)


def _outermost(folders: Iterable[Path]) -> list[Path]:
    """Return the folders without those that lie in a system folder or in another of these folders.

    Bubblewrap cannot bind a folder inside a bound one when an absolute symbolic link leads to it.
    """
    system = [Path(folder) for folder in _SYSTEM]
    distinct = sorted(set(folders))
    return [
        folder
        for folder in distinct
        if not any(folder.is_relative_to(other) for other in [*system, *distinct] if other != folder)
        and folder not in system
    ]
