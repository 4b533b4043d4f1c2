"""Whether a guest has a network.

A guest whose network is away shows error pages in place of the pages that a task opens. Its screenshots and
its browser work, so the episode would be judged 0. A Python program in the guest therefore connects to hosts
of the web. It does not use the proxy of a browser.
"""

import asyncio
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from dart.environments.deadlines import LeftS, counting_down
from dart.environments.faults import CallFailed, MachineNotReady
from dart.environments.osworld.addresses_of_pages import with_scheme
from dart.environments.osworld.guest import Guest
from dart.environments.osworld.setup_steps import Setting, needs_parameters
from dart.environments.osworld.tasks import SetupStep

Host = tuple[str, int]
"""Name or address, and port."""

PORTS = {"http": 80, "https": 443}

CONNECT_S, RESOLVE_S = 5.0, 5.0
"""How long the program waits for a connection, and how long for a name server besides."""

COMES_UP_WITHIN_S = 60.0
"""How long a machine that has just started may take until its network is there."""

ASK_EVERY_S = 2.0

CONNECTS = """
import queue, socket, threading
hosts, answers = {hosts!r}, queue.Queue()
def connect(host):
    try:
        socket.create_connection(host, timeout={connect_s}).close()
        answers.put(True)
    except (OSError, UnicodeError):
        answers.put(False)
for host in hosts:
    threading.Thread(target=connect, args=(host,), daemon=True).start()
try:
    print(any(answers.get(timeout={within_s}) for _ in hosts))
except queue.Empty:
    print(False)
"""
"""Python program that prints whether a connection to any of ``{hosts}`` succeeds. All are tried at a time."""

NETWORK_REMEDY = (
    "repair the network of the machine, or set environments.osworld.network_hosts = [] if its browser has a "
    "proxy that its programs do not use"
)


class NetworkAway(MachineNotReady):
    """A machine reaches no host of the web, so it cannot show the pages that a task opens."""


async def await_network(
    steps: Sequence[SetupStep], setting: Setting, known: Sequence[str], left_s: LeftS
) -> None:
    """Wait until the guest reaches a host of the pages that these steps open, or one of ``known``.

    A site may be down, so a host of any of them is enough. Without ``known``, or when the steps open no page
    of the web, nothing is asked. Raises NetworkAway, or a fault of the machine.
    """
    hosts = list(dict.fromkeys(_hosts_of(steps, setting)))
    if not known or not hosts:
        return
    within_s = min(COMES_UP_WITHIN_S, left_s())
    patience_s = counting_down(within_s)
    while not await reaches_any(setting.guest, hosts, left_s()):
        if await reaches_any(setting.guest, of_the_web(known), left_s()):
            return
        if patience_s() <= ASK_EVERY_S:
            names = ", ".join([*(host for host, _ in hosts), *known])
            raise NetworkAway(setting.guest.name, f"it reaches none of {names}; {NETWORK_REMEDY}", within_s)
        await asyncio.sleep(ASK_EVERY_S)


def _hosts_of(steps: Sequence[SetupStep], setting: Setting) -> Iterator[Host]:
    """Yield the hosts outside of the machine whose pages the steps open. Raises TaskUnsupported."""
    for step in steps:
        if step.type == "chrome_open_tabs":
            with needs_parameters(setting.task_id, f"step {step.type!r}", step.parameters):
                for url in setting.filled(step.parameters)["urls_to_open"]:
                    yield from host_of(url)


def host_of(address: str) -> Iterator[Host]:
    """Yield the host of a page; nothing for a page of the machine itself, such as a file."""
    parts = urlsplit(with_scheme(address))
    host = parts.hostname or ""
    is_inside = host in ("", "localhost", "::1") or host.startswith("127.")
    if parts.scheme in PORTS and not is_inside:
        yield host, parts.port or PORTS[parts.scheme]


def of_the_web(names: Sequence[str]) -> list[Host]:
    """Return hosts as pages of the web have them."""
    return [(name, PORTS["https"]) for name in names]


async def reaches_any(guest: Guest, hosts: Sequence[Host], deadline_s: float) -> bool:
    """Return whether a program in the guest can connect to any of these hosts. Raises CallFailed when the
    program fails."""
    code = CONNECTS.format(hosts=list(hosts), connect_s=CONNECT_S, within_s=CONNECT_S + RESOLVE_S)
    ended = await guest.python(code, deadline_s=deadline_s)
    if ended.last_line not in ("True", "False"):
        said = (ended.error or ended.output).strip()[-200:]
        raise CallFailed(guest.name, "looking for its network", said)
    return ended.last_line == "True"
