"""Monitors and links on the bench: who is told of whose end, when, and with which reason."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from actors.actor import Actor, Sender, receives
from actors.board import ActorState
from actors.codec import message
from actors.errors import ActorDied, ActorError, LinkedActorEnded
from actors.exit_watch import CHECK_S, REASON_DEADLINE_S
from actors.monitors import RETRY_S, Down, Exit, is_abnormal
from actors.process import EXIT_CRASHED, EXIT_SHUTDOWN
from actors.system_messages import ChildReady
from actors.testing import InMemorySystem
from supervision.child_spec import ChildSpec, Restart, SupervisorFlags
from supervision.supervisor import Supervisor, supervisor_args


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    pass


class Watchful(Actor):
    """Writes down what it is told."""

    def on_start(self) -> None:
        self.downs: list[Down] = []

    @receives(Down)
    def down(self, news: Down, sender: Sender) -> None:
        assert (sender.name, sender.incarnation) == (news.name, news.incarnation)
        self.downs.append(news)

    @receives(Crash)
    def crash(self, call: Crash, sender: Sender) -> None:
        raise ZeroDivisionError("asked to")


class Trapping(Watchful):
    traps_exits = True

    def on_start(self) -> None:
        super().on_start()
        self.exits: list[Exit] = []

    @receives(Exit)
    def exit(self, news: Exit, sender: Sender) -> None:
        self.exits.append(news)


class Careless(Actor):
    """Has no handler for Down."""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[InMemorySystem]:
    with InMemorySystem(tmp_path, live_children=True) as bench:
        yield bench


# ---- monitors ----


@pytest.mark.parametrize(("returncode", "reason"), [(0, "normal"), (-9, "SIGKILL"), (3, "exit code 3")])
def test_a_monitor_hears_once_who_ended_and_why(bench: InMemorySystem, returncode: int, reason: str) -> None:
    watchful = bench.start(Watchful, "watchful")
    bench.start(Watchful, "other")
    ref = watchful.monitor("other")
    bench.advance(1.0)
    assert watchful.downs == []
    bench.exit("other", returncode)
    bench.settle()
    assert watchful.downs == [Down(ref=ref, name="other", incarnation=1, reason=reason)]
    bench.start(Watchful, "other")
    bench.kill("other")
    bench.advance(5.0)
    assert len(watchful.downs) == 1, "another incarnation is another monitor"


def test_a_monitor_of_nobody_hears_noproc_at_once(bench: InMemorySystem) -> None:
    watchful = bench.start(Watchful, "watchful")
    bench.start(Watchful, "dead")
    bench.kill("dead")
    refs = [watchful.monitor("ghost"), watchful.monitor("dead")]
    assert watchful.downs == [], "the news is a message, not a call within the call"
    bench.settle()
    assert [(down.ref, down.reason, down.incarnation) for down in watchful.downs] == [
        (refs[0], "noproc", 0),
        (refs[1], "noproc", 0),
    ]


def test_two_monitors_are_two_messages_and_a_demonitored_one_is_none(bench: InMemorySystem) -> None:
    watchful = bench.start(Watchful, "watchful")
    bench.start(Watchful, "other")
    refs = [watchful.monitor("other") for _ in range(3)]
    silent = watchful.monitor("ghost")
    watchful.demonitor(refs[1])
    watchful.demonitor(silent)
    watchful.demonitor(999)
    bench.kill("other")
    bench.settle()
    assert [down.ref for down in watchful.downs] == [refs[0], refs[2]]
    watchful.demonitor(refs[0])


def test_a_monitor_is_one_way(bench: InMemorySystem) -> None:
    watchful = bench.start(Watchful, "watchful")
    other = bench.start(Watchful, "other")
    watchful.monitor("other")
    bench.kill("watchful")
    bench.advance(5.0)
    assert bench.is_alive("other")
    assert other.downs == []


def test_news_waits_like_mail_until_the_actor_is_started(bench: InMemorySystem) -> None:
    class Slow(Watchful):
        async def on_start(self) -> None:  # type: ignore[override]  # a base may be quicker
            self.monitor("ghost")
            self.monitor("other")
            await self.sleep(3.0)
            super().on_start()

    bench.start(Watchful, "other")
    slow = bench.start(Slow, "slow")
    bench.kill("other")
    bench.advance(4.0)
    assert [down.reason for down in slow.downs] == ["noproc", "SIGKILL"]


def test_who_has_no_handler_for_down_cannot_monitor(bench: InMemorySystem) -> None:
    with pytest.raises(ActorError, match=r"Careless monitors 'watchful' but has no handler of Down"):
        bench.start(Careless, "careless").monitor("watchful")


def test_the_reason_is_waited_for_while_the_supervisor_finds_it_out(bench: InMemorySystem) -> None:
    """The kernel is quicker than the supervisor that collects the exit code."""
    watchful = bench.start(Watchful, "watchful")
    slot = bench.start(Watchful, "other").identity.slot
    ref = watchful.monitor("other")
    bench.kill("other")
    bench.board.note_end(slot, 0, "")
    bench.board.set_state(slot, ActorState.RUNNING)
    bench.advance(5 * CHECK_S)
    assert watchful.downs == []
    bench.board.note_end(slot, 1, "out of memory")
    bench.advance(2 * CHECK_S)
    assert watchful.downs == [Down(ref=ref, name="other", incarnation=1, reason="out of memory")]


def test_a_supervisor_that_never_says_why_is_not_waited_for_for_ever(bench: InMemorySystem) -> None:
    watchful = bench.start(Watchful, "watchful")
    slot = bench.start(Watchful, "other").identity.slot
    watchful.monitor("other")
    bench.kill("other")
    bench.board.note_end(slot, 0, "")
    bench.board.set_state(slot, ActorState.RUNNING)
    bench.advance(REASON_DEADLINE_S + 2 * CHECK_S)
    assert [down.reason for down in watchful.downs] == ["unknown: its supervisor wrote no reason"]


def test_an_actor_that_is_being_started_can_be_monitored(bench: InMemorySystem) -> None:
    """Its supervisor has written its incarnation and forks; there is no process yet."""
    watchful = bench.start(Watchful, "watchful")
    slot = bench.board.claim("other", "sup")
    bench.board.set_state(slot, ActorState.STARTING, incarnation=1, pid=0)
    watchful.monitor("other")
    bench.advance(1.0)
    assert watchful.downs == []
    bench.board.set_state(slot, ActorState.STOPPED, last_reason="could not be forked")
    bench.advance(2 * CHECK_S)
    assert [down.reason for down in watchful.downs] == ["could not be forked"]


def test_an_actor_of_another_host_is_watched_on_the_board(bench: InMemorySystem) -> None:
    watchful = bench.start(Watchful, "watchful")
    slot = bench.board.claim("faraway", "bridge")
    bench.board.set_state(slot, ActorState.RUNNING, incarnation=7, pid=1, route=1)
    watchful.monitor("faraway")
    bench.advance(5.0)
    assert watchful.downs == []
    bench.board.note_end(slot, 7, "host lost")
    bench.board.set_state(slot, ActorState.STOPPED)
    bench.advance(1.0)
    assert [down.reason for down in watchful.downs] == ["host lost"]


def test_a_pid_that_was_given_out_again_is_not_taken_for_the_actor(bench: InMemorySystem) -> None:
    watchful = bench.start(Watchful, "watchful")
    slot = bench.start(Watchful, "other").identity.slot
    bench.board.set(slot, pid_start_ticks=12345)
    bench.board.note_end(slot, 1, "long ago")
    watchful.monitor("other")
    bench.settle()
    assert [down.reason for down in watchful.downs] == ["long ago"]


# ---- under a real supervisor ----


def supervised(bench: InMemorySystem, restart: Restart = Restart.PERMANENT) -> Watchful:
    spec = ChildSpec(id="child", actor=f"{__name__}:Watchful", restart=restart)
    bench.start(Supervisor, "sup", supervisor_args(SupervisorFlags(), (spec,)))
    bench.advance(0.5)
    watchful = bench.start(Watchful, "watchful")
    watchful.monitor("child")
    return watchful


@pytest.mark.parametrize("restart", list(Restart))
@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (lambda bench: bench.kill("child"), "SIGKILL"),
        (lambda bench: bench.exit("child", 0), "normal"),
        (lambda bench: bench.exit("child", EXIT_SHUTDOWN), "shutdown"),
        (
            lambda bench: bench.tell("child", Crash()),
            f"exit code {EXIT_CRASHED}: ZeroDivisionError: asked to",
        ),
    ],
)
def test_the_reason_is_the_supervisors_whether_it_starts_the_child_again_or_not(
    bench: InMemorySystem, restart: Restart, end: Callable[[InMemorySystem], object], reason: str
) -> None:
    watchful = supervised(bench, restart)
    end(bench)
    bench.advance(0.5)
    assert [down.reason for down in watchful.downs] == [reason]


def test_a_child_that_its_supervisor_stopped_ended_with_shutdown(bench: InMemorySystem) -> None:
    watchful = supervised(bench)
    bench.actor("sup").stop()
    bench.advance(1.0)
    assert [down.reason for down in watchful.downs] == ["shutdown"]


def test_a_child_that_went_with_its_supervisor_is_heard_of_too(bench: InMemorySystem) -> None:
    watchful = supervised(bench)
    bench.kill("sup")
    bench.advance(REASON_DEADLINE_S + 1.0)
    assert len(watchful.downs) == 1


# ---- links ----


@pytest.mark.parametrize(("victim", "survivor"), [("a", "b"), ("b", "a")])
def test_a_link_holds_both_ways(bench: InMemorySystem, victim: str, survivor: str) -> None:
    bench.start(Watchful, "b")
    bench.start(Watchful, "a").link("b")
    bench.settle()
    bench.kill(victim)
    with pytest.raises(LinkedActorEnded, match=rf"'{victim}' \(incarnation 1\), linked .* ended: SIGKILL"):
        bench.settle()
    assert not bench.is_alive(survivor)


def test_a_normal_end_is_not_passed_on(bench: InMemorySystem) -> None:
    bench.start(Watchful, "b")
    bench.start(Watchful, "a").link("b")
    bench.settle()
    bench.exit("b", 0)
    bench.advance(5.0)
    assert bench.is_alive("a")


def test_shutdown_is_normal_to_a_link_and_everything_else_is_not() -> None:
    assert not is_abnormal("normal")
    assert not is_abnormal("shutdown")
    assert all(is_abnormal(reason) for reason in ("noproc", "SIGKILL", "exit code 1", "unknown", ""))


def test_a_link_to_nobody_is_a_link_to_somebody_who_just_died(bench: InMemorySystem) -> None:
    bench.start(Watchful, "a").link("ghost")
    with pytest.raises(LinkedActorEnded, match=r"'ghost' .* ended: noproc"):
        bench.settle()


@pytest.mark.parametrize("who", ["a", "b"])
def test_either_side_can_unlink(bench: InMemorySystem, who: str) -> None:
    actors = {name: bench.start(Watchful, name) for name in "ab"}
    actors["a"].link("b")
    bench.settle()
    actors[who].unlink("b" if who == "a" else "a")
    bench.settle()
    bench.kill("a")
    bench.advance(5.0)
    assert bench.is_alive("b")


def test_a_link_made_twice_is_one_link(bench: InMemorySystem) -> None:
    trapping = bench.start(Trapping, "trapping")
    bench.start(Watchful, "b").link("trapping")
    trapping.link("b")
    trapping.link("b")
    bench.settle()
    bench.kill("b")
    bench.settle()
    assert len(trapping.exits) == 1


def test_who_traps_exits_gets_them_as_messages_normal_ones_too(bench: InMemorySystem) -> None:
    trapping = bench.start(Trapping, "trapping")
    for name in ("b", "c"):
        bench.start(Watchful, name)
        trapping.link(name)
    trapping.link("ghost")
    bench.settle()
    bench.exit("b", 0)
    bench.kill("c")
    bench.settle()
    assert trapping.exits == [
        Exit(name="ghost", incarnation=0, reason="noproc"),
        Exit(name="b", incarnation=1, reason="normal"),
        Exit(name="c", incarnation=1, reason="SIGKILL"),
    ]


def test_a_class_that_traps_exits_without_taking_them_is_an_error_where_it_is_written() -> None:
    with pytest.raises(
        TypeError, match=r"Forgetful traps exits but has no handler of Exit; .*@receives\(Exit\)"
    ):

        class Forgetful(Actor):
            traps_exits = True


def test_one_who_dies_before_its_link_is_heard_of_is_heard_of_with_it(bench: InMemorySystem) -> None:
    bench.start(Watchful, "b")
    bench.start(Watchful, "a").link("b")
    bench.kill("a")
    with pytest.raises(LinkedActorEnded, match="'a'"):
        bench.settle()


# ---- asks ----


def test_an_ask_ends_when_the_process_does_though_the_board_does_not_say_so_yet(
    bench: InMemorySystem,
) -> None:
    class Slow(Actor):
        @receives(Crash)
        async def crash(self, call: Crash, sender: Sender) -> None:
            await self.sleep(1e6)

    slot = bench.start(Slow, "slow").identity.slot
    answer = bench.ask("slow", Crash(), deadline_s=3600.0)
    bench.settle()
    bench.kill("slow")
    bench.board.note_end(slot, 0, "")
    bench.board.set_state(slot, ActorState.RUNNING)
    bench.advance(0.02)
    with pytest.raises(ActorDied, match="'slow' ended before it answered"):
        answer.result()


def test_a_peer_that_is_asked_a_thousand_times_costs_one_descriptor(bench: InMemorySystem) -> None:
    bench.start(Watchful, "other")
    asker = bench.start(Watchful, "one")
    for _ in range(100):
        asker.ask("other", ChildReady(incarnation=1))
        bench.settle()
    assert len([fd for fd in bench.runtimes["one"].watched if fd >= 0]) == 1
    bench.kill("other")
    bench.advance(1.0)
    assert [fd for fd in bench.runtimes["one"].watched if fd >= 0] == []


# ---- a mailbox that is full when one links to it ----


def fill(bench: InMemorySystem, name: str) -> None:
    bench.hang(name)
    while bench.tell(name, Crash()):
        pass


class Patient(Watchful):
    """Is not ended by what fills its mailbox."""

    @receives(Crash)
    def crash(self, call: Crash, sender: Sender) -> None:
        """Nothing."""


def test_a_link_to_an_actor_whose_mailbox_is_full_holds_both_ways(bench: InMemorySystem) -> None:
    near = bench.start(Patient, "near")
    bench.start(Patient, "far")
    fill(bench, "far")
    near.link("far")
    bench.settle()
    bench.resume("far")
    bench.advance(2 * RETRY_S)
    bench.kill("near")
    with pytest.raises(LinkedActorEnded, match="'near'"):
        bench.advance(REASON_DEADLINE_S)


def test_an_unlink_from_an_actor_whose_mailbox_is_full_holds_both_ways(bench: InMemorySystem) -> None:
    near = bench.start(Patient, "near")
    bench.start(Patient, "far")
    near.link("far")
    bench.settle()
    fill(bench, "far")
    near.unlink("far")
    bench.settle()
    bench.resume("far")
    bench.advance(2 * RETRY_S)
    bench.kill("near")
    bench.advance(REASON_DEADLINE_S)
    assert bench.is_alive("far")


def test_whoever_ends_with_a_full_mailbox_is_not_told_for_ever(bench: InMemorySystem) -> None:
    near = bench.start(Patient, "near")
    bench.start(Patient, "far")
    fill(bench, "far")
    near.link("far")
    near.unlink("far")
    bench.settle()
    bench.kill("far")
    bench.advance(4 * RETRY_S)
    unsent = bench.row("near").unsent
    bench.advance(10.0)
    assert bench.row("near").unsent == unsent
