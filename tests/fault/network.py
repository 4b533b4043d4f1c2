"""Machines that are network namespaces on one switch, with links that can be cut, healed and made deaf."""

import os
import shutil
import subprocess
import uuid
from pathlib import Path

NAMES = Path("/var/run/netns")
PREFIX = "dartrl-test"
SWITCH_ADDRESS = "10.77.0.254"


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
