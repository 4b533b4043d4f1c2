"""Actors for tests of placement; in a module of their own because they are started by `module:Class`."""

from dataclasses import dataclass

from actors.actor import Actor, Sender, receives
from actors.codec import message


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


class Stillborn(Actor):
    """Never gets ready."""

    def on_start(self) -> None:
        raise ZeroDivisionError("as ever")


class Lingerer(Actor):
    """Takes its time to end."""

    async def on_stop(self) -> None:
        await self.sleep(1.0)


class Tool(Traveller):
    """Wears out: each question is a use."""

    @receives(Where)
    def where(self, call: Where, sender: Sender) -> Here:
        self.used()
        return super().where(call, sender)
