"""Machines that are network namespaces on one switch, with links that can be cut, healed and made deaf."""

import ctypes
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NAMES = Path("/var/run/netns")
PREFIX = "dartrl-test"
SWITCH_ADDRESS = "10.77.0.254"
CLONE_NEWNET = 0x40000000


def why_not() -> str:
    """Why this machine can have no network namespaces; empty when it can."""
    ip = _ip()
    if ip is None:
        return "the command `ip` is missing; scripts/setup.sh installs it: apt-get install iproute2"
    name = f"{PREFIX}-{os.getpid()}-try"
    tried = subprocess.run([ip, "netns", "add", name], capture_output=True, text=True)
    if tried.returncode != 0:
        return f"no network namespace can be made here: {tried.stderr.strip()}"
    subprocess.run([ip, "netns", "delete", name], check=True)
    return ""


class Network:
    """A switch and one namespace per host: 10.77.0.1 for the first, and so on. A context manager."""

    def __init__(self, *hosts: str) -> None:
        self._mark = f"{PREFIX}-{os.getpid()}-{uuid.uuid4().hex[:4]}"
        self._hosts = hosts
        self.switch = f"{self._mark}-sw"

    def __enter__(self) -> "Network":
        _sweep()
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in (self.switch, *(self.namespace(host) for host in self._hosts)):
            if (NAMES / name).exists():
                _run("netns", "delete", name)

    def namespace(self, host: str) -> str:
        return f"{self._mark}-{host}"

    def address(self, host: str) -> str:
        return f"10.77.0.{self._hosts.index(host) + 1}"

    def command(self, host: str, *command: str) -> list[str]:
        """The command as it is run on that host; the process keeps its parent."""
        ip = _ip()
        assert ip is not None, "looked for by why_not()"
        return [ip, "netns", "exec", self.namespace(host), *command]

    @contextmanager
    def inside(self, host: str) -> Iterator[None]:
        """This thread, and the processes that it starts, are on that host while the block lasts."""
        with Path("/proc/thread-self/ns/net").open() as own, (NAMES / self.namespace(host)).open() as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(own.fileno())

    def pids(self, host: str) -> list[int]:
        """All processes on that host."""
        there = (NAMES / self.namespace(host)).stat()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended
                if os.path.samestat((process / "ns" / "net").stat(), there):
                    found.append(int(process.name))
        return found

    def cut(self, host: str) -> None:
        """The plug is pulled: the host sees that its link is down."""
        _run("-n", self.switch, "link", "set", f"to-{host}", "down")

    def drop(self, host: str) -> None:
        """The switch passes nothing on; the host's link looks as ever."""
        _run("-n", self.switch, "link", "set", f"to-{host}", "nomaster")

    def heal(self, host: str) -> None:
        _run("-n", self.switch, "link", "set", f"to-{host}", "master", "br0", "up")

    def _build(self) -> None:
        _run("netns", "add", self.switch)
        _run("-n", self.switch, "link", "add", "br0", "type", "bridge")
        _run("-n", self.switch, "addr", "add", f"{SWITCH_ADDRESS}/24", "dev", "br0")
        _run("-n", self.switch, "link", "set", "br0", "up")
        for host in self._hosts:
            inside = self.namespace(host)
            _run("netns", "add", inside)
            peer = ("peer", "name", "eth0", "netns", inside)
            _run("-n", self.switch, "link", "add", f"to-{host}", "type", "veth", *peer)
            _run("-n", inside, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            _run("-n", inside, "link", "set", "eth0", "up")
            _run("-n", inside, "link", "set", "lo", "up")
            self.heal(host)


def _enter(namespace: int) -> None:
    """Move this thread into a network namespace, by a file descriptor (setns(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _ip() -> str | None:
    return shutil.which("ip", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin")))


def _run(*arguments: str) -> None:
    ip = _ip()
    assert ip is not None, "looked for by why_not()"
    done = subprocess.run([ip, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr.strip()}"


def _sweep() -> None:
    """What a test process that was killed left behind."""
    for path in NAMES.glob(f"{PREFIX}-*"):
        pid = path.name.removeprefix(f"{PREFIX}-").partition("-")[0]
        if not Path(f"/proc/{pid}").exists():
            _run("netns", "delete", path.name)
