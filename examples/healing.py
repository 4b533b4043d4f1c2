"""A tree that heals itself: three of its processes are killed, each in another way."""

import os
import signal
from dataclasses import dataclass

from actors import Actor, Sender, message, receives
from supervision import Strategy, SupervisorFlags, supervised, supervisor_spec, worker
from supervision.tree_text import tree_lines


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Recurse:
    """Never answered."""


class Worker(Actor):
    """Does nothing, until it is asked for too much."""

    @receives(Recurse)
    def recurse(self, call: Recurse, sender: Sender) -> None:
        self.recurse(call, sender)


def main() -> None:
    tree = (
        worker("store", Worker),
        supervisor_spec(
            "pool", SupervisorFlags(ordered=False), tuple(worker(f"vm-{n}", Worker) for n in range(3))
        ),
        worker("trainer", Worker),
    )
    with supervised(
        *tree, flags=SupervisorFlags(strategy=Strategy.REST_FOR_ONE), print_reports=False
    ) as system:
        print("\n".join(tree_lines(system.board)))

        os.kill(system.vitals("vm-0").pid, signal.SIGKILL)
        system.tell("vm-1", Recurse())
        system.await_ready("vm-0", "vm-1", incarnation=2)
        os.kill(system.vitals("pool").pid, signal.SIGSEGV)
        system.await_ready("pool", "trainer", incarnation=2)

        print("\nafter a SIGKILL, an endless recursion and a segmentation fault:\n")
        print("\n".join(tree_lines(system.board)))


if __name__ == "__main__":
    main()
