"""A pool of machines, one of which fails at every start: it is quarantined and the others continue."""

import time
from dataclasses import dataclass

from actors import Actor, ActorState, Sender, message, receives
from supervision import Backoff, Breaker, SupervisorFlags, supervised, supervisor_spec, worker


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Answered by Done."""

    item: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    item: int
    by: str


class Machine(Actor):
    """args: `is_broken`, for the machine whose disk is full at every start."""

    def on_start(self) -> None:
        if self.args["is_broken"]:
            self.after(0.02, self.fail)

    def fail(self) -> None:
        raise OSError("No space left on device")

    @receives(Work)
    def work(self, call: Work, sender: Sender) -> Done:
        return Done(item=call.item, by=self.identity.name)


def main() -> None:
    machines = tuple(
        worker(
            f"machine-{number}",
            Machine,
            {"is_broken": number == 2},
            backoff=Backoff(initial_s=0.05),
            breaker=Breaker(max_failures=3, within_s=60.0, open_s=600.0),
        )
        for number in range(4)
    )
    pool = supervisor_spec("pool", SupervisorFlags(ordered=False, max_quarantined=0.5), machines)
    with supervised(pool) as system:
        give_up_s = time.monotonic() + 30.0
        while system.vitals("machine-2").state is not ActorState.QUARANTINED:
            assert time.monotonic() < give_up_s, "machine-2 was not quarantined"
            time.sleep(0.01)
        for row in system.board.rows():
            if row.parent == "pool":
                print(f"{row.name}  {row.state.value:12} restarts {row.restarts}  {row.last_reason}")
        for item, name in enumerate(["machine-0", "machine-1", "machine-3"]):
            print(system.ask(name, Work(item=item)))


if __name__ == "__main__":
    main()
