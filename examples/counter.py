"""A counter that crashes, and is back before you can ask why."""

from dataclasses import dataclass

from actors import Actor, ActorDied, Sender, message, receives
from supervision import supervised, worker


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """Answered by Total."""

    number: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class DivideBy:
    """Answered by Total; nothing stops you from dividing by 0."""

    number: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    value: int


class Counter(Actor):
    def on_start(self) -> None:
        self.total = 0

    @receives(Add)
    def add(self, call: Add, sender: Sender) -> Total:
        self.total += call.number
        return Total(value=self.total)

    @receives(DivideBy)
    def divide(self, call: DivideBy, sender: Sender) -> Total:
        self.total //= call.number
        return Total(value=self.total)


def main() -> None:
    with supervised(worker("counter", Counter)) as system:
        print(system.ask("counter", Add(number=40)))
        print(system.ask("counter", DivideBy(number=4)))
        try:
            system.ask("counter", DivideBy(number=0))
        except ActorDied:
            print("it died")
        system.await_ready("counter", incarnation=2)
        print(system.ask("counter", Add(number=1)))
        print("why:", system.vitals("counter").last_reason)


if __name__ == "__main__":
    main()
