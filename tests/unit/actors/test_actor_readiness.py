"""From the fork to the first work: probes, being ignored, and what the board says of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from actors.actor import Actor, Sender, receives
from actors.board import Vitals
from actors.codec import message
from actors.errors import ActorError
from actors.process import EXIT_IGNORED
from actors.system_messages import ChildReady
from actors.testing import InMemorySystem


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    pass


class Engine(Actor):
    """Fit as long as the test says so."""

    def on_start(self) -> None:
        self.is_fit: bool | None = False
        self.probes = 0

    def on_probe(self) -> object:
        self.probes += 1
        return self.is_fit

    @receives(Ping)
    def ping(self, call: Ping, sender: Sender) -> Ping:
        self.used()
        return call


class Eager(Actor):
    """Says that it is ready before its start has ended."""

    async def on_start(self) -> None:
        self.set_ready(True)
        await self.sleep(10.0)


class SlowProbe(Engine):
    """Its probe is a coroutine that takes `args["probe_s"]`."""

    def on_probe(self) -> object:
        async def real_work() -> bool:
            self.probes += 1
            await self.sleep(self.args["probe_s"])
            return True

        return real_work()


class Parent(Actor):
    def on_start(self) -> None:
        self.ready_children: list[tuple[str, int]] = []

    @receives(ChildReady)
    def child_ready(self, news: ChildReady, sender: Sender) -> None:
        self.ready_children.append((sender.name, news.incarnation))


class Needless(Actor):
    """Has nothing to do here."""

    async def on_start(self) -> None:
        await self.sleep(self.args.get("finds_out_after_s", 0.0))
        self.ignore()

    def on_stop(self) -> None:
        raise AssertionError("an actor that was never there has nothing to let go of")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[InMemorySystem]:
    with InMemorySystem(tmp_path) as bench:
        yield bench


def row(bench: InMemorySystem, actor: Actor) -> Vitals:
    return bench.board.vitals(actor.identity.slot)


def test_without_probes_an_actor_is_ready_when_it_is_started_and_its_parent_hears_of_it(
    bench: InMemorySystem,
) -> None:
    parent = bench.start(Parent, "parent")
    child = bench.start(Engine, "child", parent="parent")
    bench.settle()
    assert row(bench, child).ready
    assert parent.ready_children == [("child", 1)]
    assert child.probes == 0


def test_with_probes_it_is_started_at_once_and_ready_after_the_first_yes(bench: InMemorySystem) -> None:
    parent = bench.start(Parent, "parent")
    child = bench.start(Engine, "child", parent="parent", probe_every_s=1.0)
    answer = bench.ask("child", Ping())
    bench.advance(0.5)
    assert answer.result() == Ping(), "it is started and takes mail"
    assert not row(bench, child).ready
    child.is_fit = True
    bench.advance(1.0)
    assert row(bench, child).ready
    assert parent.ready_children == [("child", 1)]


def test_a_probe_that_says_no_takes_it_out_of_rotation_until_the_next_yes(bench: InMemorySystem) -> None:
    parent = bench.start(Parent, "parent")
    child = bench.start(Engine, "child", parent="parent", probe_every_s=1.0)
    readiness = []
    for is_fit in (True, False, None, True):
        child.is_fit = is_fit
        bench.advance(1.0)
        readiness.append(row(bench, child).ready)
    assert readiness == [True, False, False, True]
    assert parent.ready_children == [("child", 1)], "its parent is told the first time alone"


def test_a_probe_that_outlasts_the_time_between_two_is_a_no_and_only_one_runs(bench: InMemorySystem) -> None:
    quick = bench.start(SlowProbe, "quick", {"probe_s": 0.5}, probe_every_s=1.0)
    slow = bench.start(SlowProbe, "slow", {"probe_s": 2.5}, probe_every_s=1.0)
    bench.advance(2.4)
    assert row(bench, quick).ready
    assert (row(bench, slow).ready, slow.probes) == (False, 1)
    bench.advance(0.2)
    assert row(bench, slow).ready, "a late yes is a yes"
    bench.advance(1.5)
    assert (row(bench, slow).ready, slow.probes) == (False, 2)


def test_a_stopping_actor_is_not_made_ready_by_a_probe(bench: InMemorySystem) -> None:
    class SlowToGo(SlowProbe):
        async def on_stop(self) -> None:
            await self.sleep(60.0)

    child = bench.start(SlowToGo, "child", {"probe_s": 0.5}, probe_every_s=1.0)
    child.stop()
    bench.advance(5.0)
    assert not row(bench, child).ready
    assert child.probes == 1


@pytest.mark.parametrize("after_s", [0.0, 2.0])
def test_an_actor_that_is_ignored_ends_without_having_been_there(
    bench: InMemorySystem, after_s: float
) -> None:
    needless = bench.start(Needless, "needless", {"finds_out_after_s": after_s})
    bench.advance(after_s)
    assert bench.runtimes["needless"].exit_code == EXIT_IGNORED
    assert not row(bench, needless).ready


def test_a_started_actor_cannot_be_ignored(bench: InMemorySystem) -> None:
    engine = bench.start(Engine, "engine")
    with pytest.raises(ActorError, match="'engine' is started and cannot be ignored; call stop"):
        engine.ignore()


def test_the_board_counts_uses_and_what_could_not_be_sent_of_this_incarnation(bench: InMemorySystem) -> None:
    engine = bench.start(Engine, "engine")
    bench.ask("engine", Ping())
    bench.settle()
    engine.used(4)
    engine.tell("ghost", Ping())
    engine.ask("ghost", Ping())
    assert (row(bench, engine).uses, row(bench, engine).unsent) == (5, 2)
    bench.end("engine")
    again = bench.start(Engine, "engine")
    assert (row(bench, again).uses, row(bench, again).unsent, row(bench, again).messages) == (0, 0, 0)


def test_progress_is_a_finished_message_and_not_a_turn(bench: InMemorySystem) -> None:
    engine = bench.start(Engine, "engine")
    bench.advance(1.0)
    bench.turn("engine")
    assert row(bench, engine).progress_age_s is None
    bench.tell("engine", Ping())
    bench.settle()
    assert row(bench, engine).progress_age_s is not None


def test_what_an_actor_died_of_stands_on_the_board(bench: InMemorySystem) -> None:
    class Broken(Engine):
        @receives(Ping)
        def ping(self, call: Ping, sender: Sender) -> Ping:
            raise ZeroDivisionError("first line\nsecond line")

    broken = bench.start(Broken, "broken")
    bench.tell("broken", Ping())
    with pytest.raises(ZeroDivisionError):
        bench.settle()
    assert row(bench, broken).last_error == "ZeroDivisionError: first line second line"


def test_who_has_not_started_is_not_ready_whatever_it_says(tmp_path: Path) -> None:
    with InMemorySystem(tmp_path) as bench:
        bench.start(Eager, "eager")
        assert not bench.row("eager").ready
        bench.advance(11.0)
        assert bench.row("eager").ready
