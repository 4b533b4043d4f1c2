"""The test kit: actors without processes behave as processes would, the same every time under one seed."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from actors.actor import Actor, Sender, Stop, receives
from actors.board import ActorState
from actors.codec import message
from actors.last_words import last_words
from actors.process import EXIT_CRASHED
from actors.testing import InMemorySystem
from supervision.child_spec import ChildSpec, SupervisorFlags
from supervision.supervisor import Supervisor, supervisor_args, supervisor_spec


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    text: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class PassOn:
    """To be told to others in turn."""

    to: str
    text: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    how: str


class Scribe(Actor):
    """Writes down what it hears, and breaks as told. args: `fails_to_start`."""

    def on_start(self) -> None:
        self.heard: list[str] = []
        if self.args.get("fails_to_start"):
            raise ZeroDivisionError("not today")

    @receives(Note)
    def note(self, call: Note, sender: Sender) -> Note:
        self.heard.append(call.text)
        return call

    @receives(PassOn)
    def pass_on(self, call: PassOn, sender: Sender) -> None:
        self.tell(call.to, Note(text=call.text))

    @receives(Break)
    def break_(self, call: Break, sender: Sender) -> None:
        if call.how == "exit":
            self.runtime.exit(3)
            self.heard.append("a process that ended does nothing more")
        raise ZeroDivisionError("asked to")


SCRIBE = f"{__name__}:Scribe"


def scribe(id_: str, **args: object) -> ChildSpec:
    return ChildSpec(id=id_, actor=SCRIBE, args=args, hang_deadline_s=2.0)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[InMemorySystem]:
    with InMemorySystem(tmp_path, live_children=True) as bench:
        yield bench


def start_tree(bench: InMemorySystem, *specs: ChildSpec, flags: SupervisorFlags | None = None) -> None:
    bench.start(Supervisor, "sup", supervisor_args(flags or SupervisorFlags(max_restarts=10), specs))
    bench.advance(0.5)


def said(bench: InMemorySystem, name: str) -> object:
    answer = bench.ask(name, Note(text="still there"))
    bench.advance(0.1)
    return answer.result()


# ---- live children ----


def test_a_spawned_child_is_an_actor_that_answers(bench: InMemorySystem) -> None:
    start_tree(bench, scribe("a"), scribe("b"))
    assert said(bench, "a") == said(bench, "b") == Note(text="still there")
    assert bench.row("sup").ready
    assert bench.row("a").state is ActorState.RUNNING


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (lambda bench: bench.kill("a"), "SIGKILL"),
        (lambda bench: bench.exit("a", -11), "SIGSEGV"),
        (lambda bench: bench.exit("a", 0), "normal"),
        (lambda bench: bench.tell("a", Break(how="exit")), "exit code 3"),
        (lambda bench: bench.tell("a", Stop()), "normal"),
        (lambda bench: bench.tell("a", Break(how="raise")), "ZeroDivisionError: asked to"),
    ],
)
def test_however_a_child_ends_its_supervisor_sees_it_as_of_a_process(
    bench: InMemorySystem, end: object, reason: str
) -> None:
    start_tree(bench, scribe("a"), scribe("b"))
    first, bystander = bench.actor("a"), bench.actor("b")
    assert callable(end)
    end(bench)
    bench.advance(0.5)
    assert reason in bench.row("a").last_reason
    assert bench.row("a").incarnation == 2
    assert bench.actor("a") is not first
    assert bench.actor("b") is bystander
    assert first.heard == [], "nothing runs after its process ended"
    assert said(bench, "a") == Note(text="still there")


def test_a_crash_leaves_last_words_and_the_error_on_the_board(bench: InMemorySystem, tmp_path: Path) -> None:
    start_tree(bench, scribe("a"))
    bench.tell("a", Break(how="raise"))
    bench.advance(0.5)
    assert last_words(tmp_path, "a", 1) == "ZeroDivisionError: asked to"
    assert bench.row("a").last_error == "ZeroDivisionError: asked to"
    assert f"exit code {EXIT_CRASHED}" in bench.row("a").last_reason


def test_a_child_that_cannot_start_is_a_failed_start(bench: InMemorySystem) -> None:
    start_tree(bench, scribe("a", fails_to_start=True))
    assert not bench.is_alive("sup")
    assert "ZeroDivisionError: not today" in bench.row("sup").last_reason


def test_a_child_whose_class_does_not_exist_is_a_failed_start(bench: InMemorySystem) -> None:
    start_tree(bench, ChildSpec(id="a", actor="no_such_module:Class"))
    assert not bench.is_alive("sup")
    assert "No module named 'no_such_module'" in bench.row("sup").last_reason
    assert bench.row("a").last_error == "ModuleNotFoundError: No module named 'no_such_module'"
    assert bench.row("sup").last_error.startswith("gave up: child 'a' failed to start")


def test_an_idle_child_beats_and_is_never_taken_for_hung(bench: InMemorySystem) -> None:
    start_tree(bench, scribe("a"))
    bench.advance(60.0)
    assert bench.row("a").incarnation == 1


@pytest.mark.parametrize(("handler", "why"), [("", "no beat for 2"), ("Note", "in Note for 2")])
def test_a_hung_child_is_found_and_replaced(bench: InMemorySystem, handler: str, why: str) -> None:
    start_tree(bench, scribe("a"))
    bench.hang("a", handler=handler)
    bench.advance(1.5)
    assert bench.row("a").incarnation == 1
    bench.advance(1.5)
    assert bench.row("a").incarnation == 2
    assert why in bench.row("a").last_reason
    assert said(bench, "a") == Note(text="still there")


def test_a_child_that_goes_on_in_time_keeps_its_mail_and_its_life(bench: InMemorySystem) -> None:
    start_tree(bench, scribe("a"))
    bench.hang("a")
    answer = bench.ask("a", Note(text="waits"))
    bench.advance(1.0)
    assert not answer.is_done
    bench.resume("a")
    bench.settle()
    assert answer.result() == Note(text="waits")
    bench.advance(5.0)
    assert bench.row("a").incarnation == 1


def test_when_a_supervisor_is_killed_its_children_go_with_it_and_come_back(bench: InMemorySystem) -> None:
    start_tree(bench, supervisor_spec("pool", SupervisorFlags(), (scribe("inner"),)))
    inner = bench.actor("inner")
    bench.kill("pool")
    assert not bench.is_alive("inner")
    bench.advance(1.0)
    assert bench.actor("inner") is not inner
    assert (bench.row("pool").incarnation, bench.row("inner").incarnation) == (2, 2)


def test_a_tree_that_is_stopped_ends_children_first(bench: InMemorySystem) -> None:
    start_tree(bench, supervisor_spec("pool", SupervisorFlags(), (scribe("inner"),)), scribe("a"))
    bench.tell("sup", Stop())
    bench.advance(1.0)
    assert [bench.is_alive(name) for name in ("inner", "a", "pool", "sup")] == [False] * 4
    assert bench.runtimes["sup"].exit_code == 0


def test_a_bench_that_is_left_leaves_no_descriptor(tmp_path: Path) -> None:
    own = psutil.Process()
    before = own.num_fds()
    with InMemorySystem(tmp_path, live_children=True) as bench:
        start_tree(bench, scribe("a"))
        in_use = own.num_fds()
        for _ in range(5):
            bench.kill("a")
            bench.advance(60.0)
        assert bench.row("a").incarnation == 6
        assert own.num_fds() == in_use, "a restart costs none"
    assert own.num_fds() <= before + 1, "the living child's pidfd is its supervisor's"


# ---- one seed, one interleaving ----


def story(folder: Path, seed: int | None) -> list[str]:
    """Three scribes race to tell a fourth."""
    folder.mkdir()
    with InMemorySystem(folder, seed=seed) as bench:
        listener = bench.start(Scribe, "listener")
        for name in "abc":
            bench.start(Scribe, name)
            for number in range(3):
                bench.tell(name, PassOn(to="listener", text=f"{name}{number}"))
        bench.settle()
        return listener.heard


def test_one_seed_is_one_interleaving_and_another_is_another(tmp_path: Path) -> None:
    heard = {seed: story(tmp_path / f"first-{seed}", seed) for seed in range(10)}
    again = {seed: story(tmp_path / f"again-{seed}", seed) for seed in range(10)}
    assert heard == again
    assert len(set(map(tuple, heard.values()))) > 5


def test_in_every_interleaving_mail_of_one_sender_stays_in_order(tmp_path: Path) -> None:
    for seed in range(10):
        heard = story(tmp_path / str(seed), seed)
        assert sorted(heard) == [f"{name}{number}" for name in "abc" for number in range(3)]
        for name in "abc":
            assert [text for text in heard if text[0] == name] == [f"{name}{number}" for number in range(3)]


def test_without_a_seed_turns_are_in_the_order_of_names(tmp_path: Path) -> None:
    assert story(tmp_path / "plain", None) == [f"{name}{number}" for name in "abc" for number in range(3)]


@pytest.mark.parametrize("seed", range(5))
def test_a_tree_heals_itself_in_any_order_of_events(tmp_path: Path, seed: int) -> None:
    with InMemorySystem(tmp_path, seed=seed, live_children=True) as bench:
        pool = SupervisorFlags(ordered=False, max_restarts=10)
        start_tree(bench, *(scribe(name) for name in "abc"), flags=pool)
        bench.kill("a")
        bench.tell("b", Break(how="raise"))
        bench.exit("c", 5)
        bench.advance(1.0)
        assert [bench.row(name).incarnation for name in "abc"] == [2, 2, 2]
        assert [said(bench, name) for name in "abc"] == [Note(text="still there")] * 3
