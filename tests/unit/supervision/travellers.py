"""Actors for tests of placement; in a module of their own because they are started by `module:Class`."""

from dataclasses import dataclass

from actors.actor import Actor, Sender, receives
from actors.bridge_messages import Export, Exported
from actors.codec import message
from actors.errors import AskError


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Answered by Here."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    incarnation: int


class Traveller(Actor):
    """Says under which number it runs."""

    @receives(Where)
    def where(self, call: Where, sender: Sender) -> Here:
        return Here(incarnation=self.identity.incarnation)


class Listener(Traveller):
    """Keeps the names of those who ask it."""

    def on_start(self) -> None:
        self.askers: set[str] = set()

    @receives(Where)
    def where(self, call: Where, sender: Sender) -> Here:
        self.askers.add(sender.name)
        return super().where(call, sender)


class Seeker(Actor):
    """From its start, asks the actors that `args["asks"]` names again and again, and counts the answers."""

    def on_start(self) -> None:
        self.answered = 0
        self.failures: list[str] = []
        self.every(0.1, self.seek_all)

    def seek_all(self) -> None:
        for name in self.args["asks"]:
            self.run(self.seek(name))

    async def seek(self, name: str) -> None:
        try:
            await self.ask(name, Where(), deadline_s=1.0)
        except AskError as error:
            self.failures.append(str(error))
        else:
            self.answered += 1


class Slow(Actor):
    """Takes its time to get ready."""

    async def on_start(self) -> None:
        await self.sleep(2.0)


class Stillborn(Actor):
    """Never gets ready."""

    def on_start(self) -> None:
        raise ZeroDivisionError("as ever")


class ShortLived(Actor):
    """Fails `args["lives_s"]` after its start."""

    def on_start(self) -> None:
        self.after(self.args["lives_s"], self.fail)

    def fail(self) -> None:
        raise ZeroDivisionError("worn out")


class Lingerer(Actor):
    """Takes its time to end."""

    async def on_stop(self) -> None:
        await self.sleep(1.0)


class Hesitant(Actor):
    """Takes `args["stops_in_s"]` to end, and then leaves a mark in its folder."""

    async def on_stop(self) -> None:
        await self.sleep(self.args["stops_in_s"])
        (self.identity.run_dir / f"{self.identity.name}.ended").touch()


class IdleBridge(Actor):
    """A bridge of a host that no other host is connected to."""

    @receives(Export)
    def export(self, call: Export, sender: Sender) -> Exported:
        return Exported(name=call.name)


class Tool(Traveller):
    """Wears out: each question is a use."""

    @receives(Where)
    def where(self, call: Where, sender: Sender) -> Here:
        self.used()
        return super().where(call, sender)
