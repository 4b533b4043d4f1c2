"""Monitors and links between real processes that are really killed."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from actors.actor import Actor, Sender, receives
from actors.codec import message
from actors.errors import ActorDied
from actors.monitors import Down, Exit
from supervision.child_spec import ChildSpec
from tests.fault.actors_under_test import PATIENCE_S, Misbehave, Running, eventually, running, worker


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    name: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class TieTo:
    name: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    pass


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """Asked for and answered by itself."""

    reasons: tuple[str, ...] = ()


class Watcher(Actor):
    """Monitors and links as it is told."""

    def on_start(self) -> None:
        self.reasons: list[str] = []

    @receives(Watch)
    def watch(self, call: Watch, sender: Sender) -> Done:
        self.monitor(call.name)
        return Done()

    @receives(TieTo)
    def tie_to(self, call: TieTo, sender: Sender) -> Done:
        self.link(call.name)
        return Done()

    @receives(Down)
    def down(self, news: Down, sender: Sender) -> None:
        self.reasons.append(f"{news.name}.{news.incarnation}: {news.reason}")

    @receives(Heard)
    def heard(self, call: Heard, sender: Sender) -> Heard:
        return Heard(reasons=tuple(self.reasons))


class Trapper(Watcher):
    traps_exits = True

    @receives(Exit)
    def exit(self, news: Exit, sender: Sender) -> None:
        self.reasons.append(f"exit of {news.name}.{news.incarnation}: {news.reason}")


def watcher(id_: str, kind: str = "Watcher") -> ChildSpec:
    return ChildSpec(id=id_, actor=f"{__name__}:{kind}")


@pytest.fixture
def system() -> Iterator[Running]:
    with running(watcher("watcher"), watcher("trapper", "Trapper"), worker("a"), worker("b")) as system:
        system.await_up("watcher", "trapper", "a", "b")
        yield system


def await_heard(system: Running, who: str, *reasons: str) -> None:
    def heard() -> list[str]:
        answer: Heard = system.probe.ask(who, Heard())
        return sorted(answer.reasons)

    eventually(lambda: heard() == sorted(reasons), f"{who} heard {reasons}", lambda: str(heard()))


def test_a_monitor_hears_how_real_processes_end(system: Running) -> None:
    for name in ("a", "b", "ghost"):
        system.probe.ask("watcher", Watch(name=name))
    os.kill(system.pid("a"), signal.SIGKILL)
    system.probe.tell("b", Misbehave(how="raise"))
    await_heard(
        system,
        "watcher",
        "a.1: SIGKILL",
        "b.1: exit code 70: ZeroDivisionError: asked to",
        "ghost.0: noproc",
    )


def test_a_link_takes_the_other_along_both_ways_and_both_come_back(system: Running) -> None:
    for victim, other in (("a", "watcher"), ("watcher", "a")):
        system.await_up("a", "watcher")
        system.probe.ask("watcher", TieTo(name="a"))
        time.sleep(0.05)  # for the word to reach the other side; nobody tells when it has
        old = {name: system.row(name) for name in ("a", "watcher")}
        os.kill(system.pid(victim), signal.SIGKILL)
        system.await_new(victim, old[victim])
        system.await_new(other, old[other])
        assert "LinkedActorEnded" in system.row(other).last_reason
        assert "SIGKILL" in system.row(other).last_error


def test_who_traps_exits_lives_on(system: Running) -> None:
    system.probe.ask("trapper", TieTo(name="a"))
    os.kill(system.pid("a"), signal.SIGKILL)
    await_heard(system, "trapper", "exit of a.1: SIGKILL")
    assert system.row("trapper").incarnation == 1


def test_an_ask_ends_with_the_process_it_asked(system: Running) -> None:
    asked = system.probe.actor.ask("a", Misbehave(how="never answer"), deadline_s=PATIENCE_S)
    os.kill(system.pid("a"), signal.SIGKILL)
    with pytest.raises(ActorDied, match=r"'a' (ended|was restarted) before it answered"):
        system.probe.result(asked)
