"""Two hosts in one script: `a` leads, `b` has the GPU, and `b` is lost and comes back."""

import select
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from actors import Actor, ActorDied, ActorSystem, Refused, Sender, message, receives
from actors.process import die_with_parent
from actors.wire import MAX_PACKET_BYTES, opened, packet
from supervision import supervised, worker
from supervision.host_messages import Whereabouts, WhereIs
from supervision.host_specs import follower_spec, leader_spec
from supervision.placement import PlacedSpec


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Paint:
    """Answered by Painting."""

    what: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Painting:
    text: str


class Painter(Actor):
    @receives(Paint)
    def paint(self, call: Paint, sender: Sender) -> Painting:
        return Painting(text=f"{call.what}, for {sender.name}")


def follow(folder: Path) -> None:
    """What runs on host b; for this script's sake it ends with it."""
    die_with_parent()
    machine = follower_spec(host="b", leader="a", wire=folder / "b", capabilities={"gpu": 1})
    with supervised(machine) as system:
        system.wait(600.0)


def lead(folder: Path) -> None:
    """What runs on host a; it starts the other one, so that this is one script."""
    painter = PlacedSpec(child=worker("painter", Painter), needs={"gpu": 1})
    with supervised(leader_spec(host="a", wire=folder / "a", placed=(painter,))) as system:
        print("alone:", system.ask("hosts", WhereIs(name="painter")).reason)
        host_b = start("follow", folder)
        print("carried by:", await_painter(system).host)
        print(system.ask("painter", Paint(what="a pipe"), deadline_s=60.0))
        host_b.kill()
        outlive_painter(system)
        print("died:", system.vitals("painter").last_reason)
        host_b = start("follow", folder)
        print("carried by:", await_painter(system).host)
        print(system.ask("painter", Paint(what="a hat"), deadline_s=60.0))
        host_b.kill()


def start(part: str, folder: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, __file__, part, str(folder)])


def await_painter(system: ActorSystem) -> Whereabouts:
    give_up_s = time.monotonic() + 60.0
    while True:
        place: Whereabouts = system.ask("hosts", WhereIs(name="painter"))
        if place.is_up:
            return place
        assert time.monotonic() < give_up_s, place.reason
        time.sleep(0.05)


def outlive_painter(system: ActorSystem) -> None:
    """Ask until it has died, which an ask that is under way then is told as well as one that comes later."""
    while True:
        try:
            system.ask("painter", Paint(what="a hat"), deadline_s=60.0)
        except Refused:  # its link is down already, and it is not yet given up
            time.sleep(0.05)
        except ActorDied:
            return


def carry(folder: Path) -> None:
    """The agent of both hosts, which are one machine here: what one bridge sends, the other gets."""
    die_with_parent()
    doors = {host: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for host in "ab"}
    for host, door in doors.items():
        door.bind(str(folder / host))
        door.listen()
    bridges: dict[str, socket.socket] = {}
    while True:
        ready, _, _ = select.select([*doors.values(), *bridges.values()], [], [])
        for host, door in doors.items():
            if door in ready:
                bridges[host] = door.accept()[0]
        for host, bridge in list(bridges.items()):
            if bridge in ready:
                pass_on(host, bridges)


def pass_on(host: str, bridges: dict[str, socket.socket]) -> None:
    try:
        to, frame = opened(bridges[host].recv(MAX_PACKET_BYTES)) or ("", b"")
        bridges[to].send(packet(host, frame))
    except (KeyError, BrokenPipeError):  # no bridge is there now, so the frame is lost
        return
    except (IndexError, ConnectionResetError):  # this bridge has ended
        del bridges[host]


def main() -> None:
    if len(sys.argv) > 1:
        {"follow": follow, "carry": carry}[sys.argv[1]](Path(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        agent = start("carry", Path(folder))
        while not (Path(folder) / "b").exists():
            time.sleep(0.01)
        lead(Path(folder))
        agent.kill()


if __name__ == "__main__":
    main()
