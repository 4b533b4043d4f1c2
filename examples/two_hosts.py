"""Two machines in one script: `a` leads, `b` has the GPU, and `b` is lost and comes back."""

import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from actors import Actor, ActorDied, ActorSystem, Refused, Sender, message, receives
from actors.curve import make_keys
from actors.process import die_with_parent
from supervision import supervised, worker
from supervision.hosts import Whereabouts, WhereIs, follower_spec, leader_spec
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


def follow(address: str, keys: Path) -> None:
    """What runs on machine b; for this script's sake it ends with it."""
    die_with_parent()
    leader_key = (keys / "a" / "public").read_text()
    machine = follower_spec(
        host="b", connect=address, leader_key=leader_key, keys=keys / "b", capabilities={"gpu": 1}
    )
    with supervised(machine) as system:
        system.wait(600.0)


def lead(address: str, keys: Path) -> None:
    """What runs on machine a; it starts the other one, so that this is one script."""
    make_keys(keys / "a")
    painter = PlacedSpec(child=worker("painter", Painter), needs={"gpu": 1})
    followers = {"b": make_keys(keys / "b").public.decode()}
    machine = leader_spec(host="a", listen=address, keys=keys / "a", followers=followers, placed=(painter,))
    with supervised(machine) as system:
        print("alone:", system.ask("hosts", WhereIs(name="painter")).reason)
        machine_b = start_b(address, keys)
        print("carried by:", await_painter(system).host)
        print(system.ask("painter", Paint(what="a pipe"), deadline_s=60.0))
        machine_b.kill()
        outlive_painter(system)
        print("died:", system.vitals("painter").last_reason)
        machine_b = start_b(address, keys)
        print("carried by:", await_painter(system).host)
        print(system.ask("painter", Paint(what="a hat"), deadline_s=60.0))
        machine_b.kill()


def start_b(address: str, keys: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, __file__, address, str(keys)])


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


def main() -> None:
    if len(sys.argv) > 1:
        follow(sys.argv[1], Path(sys.argv[2]))
        return
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as keys:
        lead(f"tcp://127.0.0.1:{port}", Path(keys))


if __name__ == "__main__":
    main()
