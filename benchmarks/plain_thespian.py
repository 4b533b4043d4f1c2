"""Two actors on Thespian as it comes: the measure `benchmarks.mail` compares with.

Run by it as a program of its own, so that none of the project's repairs are in the process.
``python -m benchmarks.plain_thespian ROUND_TRIPS BURST`` prints one line of JSON.
"""

import json
import socket
import sys
import time
from typing import Any

from thespian.actors import Actor, ActorSystem

TEXT = "x" * 100


class Echo(Actor):  # type: ignore[misc]  # Thespian is untyped
    """Sends back what it gets."""

    def receiveMessage(self, message: Any, sender: Any) -> None:
        if isinstance(message, dict):
            self.send(sender, message)


class Pinger(Actor):  # type: ignore[misc]
    """Measures on being told how much; answers with the figures."""

    def receiveMessage(self, message: Any, sender: Any) -> None:
        if isinstance(message, tuple):
            self._begin(*message, sender)
        elif isinstance(message, dict):
            self._returned()

    def _begin(self, round_trips: int, burst: int, asker: Any) -> None:
        self._round_trips, self._burst, self._asker = round_trips, burst, asker
        self._times_s: list[float] = []
        self._back = 0
        self._cpu_s = time.process_time()
        self._echo = self.createActor(Echo)
        self._ping()

    def _ping(self) -> None:
        self._sent_s = time.perf_counter()
        self.send(self._echo, {"text": TEXT})

    def _returned(self) -> None:
        if len(self._times_s) < self._round_trips:
            self._times_s.append(time.perf_counter() - self._sent_s)
            if len(self._times_s) < self._round_trips:
                self._ping()
            else:
                self._flood()
            return
        self._back += 1
        if self._back == self._burst:
            seconds = time.perf_counter() - self._flood_began_s
            figures = {"round_trips_s": self._times_s, "round_trips_cpu_s": self._cpu_s, "burst_s": seconds}
            self.send(self._asker, figures)

    def _flood(self) -> None:
        self._cpu_s = time.process_time() - self._cpu_s
        self._flood_began_s = time.perf_counter()
        for _ in range(self._burst):
            self.send(self._echo, {"text": TEXT})


def main() -> None:
    """One measurement."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    system = ActorSystem("multiprocTCPBase", {"Admin Port": port}, logDefs={"version": 1})
    try:
        pinger = system.createActor("benchmarks.plain_thespian.Pinger")
        print(json.dumps(system.ask(pinger, (int(sys.argv[1]), int(sys.argv[2])), 120)))
    finally:
        system.shutdown()


if __name__ == "__main__":
    main()
