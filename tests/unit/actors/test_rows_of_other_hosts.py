"""Rows of other hosts say all that rows of this host say, and age as they do."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from actors.actor import Actor, Sender, receives
from actors.board import GAUGES, ActorState, Board
from actors.bridge_messages import Export, WhichLinks
from actors.codec import message
from actors.early_frames import EARLY_FRAMES
from actors.errors import ActorDied, Refused
from actors.link import LINK_VERSION, Beat, Carry, Frame, Peers, Rows, pack, unpack
from actors.mail import Mail
from tests.unit.actors.machines import Machines, machines
from tests.unit.actors.rows import row

LEASE_S = 3.0


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    text: str


class Keeper(Actor):
    """Keeps what it is told, and can be kept from answering."""

    def on_start(self) -> None:
        self.notes: list[str] = []

    @receives(Note)
    async def note(self, call: Note, sender: Sender) -> Note:
        self.notes.append(call.text)
        if call.text == "later":
            await self.sleep(2.0)
        return call


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Machines]:
    with machines(tmp_path, "b", "c", lease_s=LEASE_S, services=["store"]) as three:
        three.start("a", Keeper, "store")
        three.start("b", Keeper, "pool", parent="placed")
        three.start("b", Keeper, "rollout-1", parent="pool")
        three.answer("b", "bridge", Export(name="pool", placed=True))
        three.run(0.3)
        yield three


def board(three: Machines, host: str) -> Board:
    return three.benches[host].board


def slot_of(three: Machines, host: str, name: str) -> int:
    return three.benches[host].row(name).slot


# ---- what they say ----


def test_a_gauge_of_an_actor_elsewhere_reads_as_one_of_an_actor_here(three: Machines) -> None:
    three.benches["b"].actor("rollout-1").set_gauges({0: 41, 1: 7, 3: -2})
    three.run(0.5)
    for host in ("a", "b", "c"):
        assert three.benches[host].row("rollout-1").gauges == (41, 7, 0, -2), host
        assert board(three, host).gauge(slot_of(three, host, "rollout-1"), 1) == 7, host


def test_a_row_says_everywhere_what_its_supervisor_wrote(three: Machines) -> None:
    bench = three.benches["b"]
    slot, now_s = slot_of(three, "b", "rollout-1"), bench.clock.unix_s()
    bench.board.note_end(slot, 1, "RuntimeError: out of memory")
    bench.board.set_state(
        slot,
        ActorState.QUARANTINED,
        restarts=4,
        last_reason="it failed too often",
        last_error="out of memory",
        started_unix_s=now_s - 60.0,
        retry_unix_s=now_s + 30.0,
        ready=0,
    )
    three.run(0.3)
    for host in ("a", "c"):
        seen = three.benches[host].row("rollout-1")
        assert (seen.parent, seen.state, seen.restarts) == ("pool", ActorState.QUARANTINED, 4)
        assert (seen.last_reason, seen.last_error) == ("it failed too often", "out of memory")
        assert seen.retry_unix_s - bench.clock.unix_s() == pytest.approx(30.0, abs=0.5)
        assert board(three, host).get(seen.slot, "ended_reason") == "RuntimeError: out of memory"
        with pytest.raises(ActorDied, match="quarantined: it failed too often"):
            three.answer(host, "rollout-1", Note(text="hi"))


def test_the_start_of_an_actor_is_told_as_an_age_so_that_clocks_may_differ(three: Machines) -> None:
    three.benches["b"].clock.set_unix_ahead(3600.0)
    started_s = three.benches["b"].clock.unix_s()
    slot = slot_of(three, "b", "rollout-1")
    board(three, "b").set(slot, started_unix_s=started_s, incarnation=2)
    three.run(0.3)
    here_s = three.benches["a"].clock.unix_s()
    first = three.benches["a"].row("rollout-1").started_unix_s
    assert first == pytest.approx(here_s, abs=0.5), "now, by the clock of this host"
    board(three, "b").set(slot, last_reason="something else")
    three.run(3.0)
    assert three.benches["a"].row("rollout-1").started_unix_s == first, "told again, and the same"


def test_a_service_of_the_leader_is_known_as_it_is_and_answers_everywhere(three: Machines) -> None:
    three.start("a", Keeper, "writer", parent="store")
    three.run(0.3)
    for host in ("b", "c"):
        assert three.answer(host, "store", Note(text=host)).text == host
        assert three.answer(host, "writer", Note(text=host)).text == host
        assert three.benches[host].row("writer").parent == "store"
        assert three.benches[host].row("store").parent == "machine-a"


# ---- ages ----


def test_the_ages_of_a_healthy_actor_elsewhere_stay_young(three: Machines) -> None:
    for _ in range(20):
        three.run(0.25)
        for host in ("a", "c"):
            assert (three.benches[host].row("rollout-1").beat_age_s or 0.0) < 2 * LEASE_S / 6 + 0.2


def test_an_actor_elsewhere_that_is_frozen_ages_as_one_here(three: Machines) -> None:
    three.start("a", Keeper, "frozen-here")
    for host, name in (("a", "frozen-here"), ("b", "rollout-1")):
        three.benches[host].hang(name)
    three.run(2.5)
    here = three.benches["a"].row("frozen-here").beat_age_s
    assert here is not None
    for host in ("a", "b", "c"):
        assert three.benches[host].row("rollout-1").beat_age_s == pytest.approx(here, abs=0.2), host
        assert three.benches[host].row("pool").beat_age_s < 1.5, "the others on its host are well"


def test_what_an_actor_elsewhere_does_and_since_when_is_seen_here(three: Machines) -> None:
    three.benches["b"].hang("rollout-1", handler="Generate")
    slot = slot_of(three, "b", "rollout-1")
    now_ns = board(three, "b").now_ns()
    board(three, "b").set(
        slot, work="loading version 7", work_since_ns=now_ns, progress_ns=now_ns, messages=9
    )
    three.run(2.0)
    for host in ("a", "c"):
        seen = three.benches[host].row("rollout-1")
        assert (seen.handler, seen.work, seen.messages) == ("Generate", "loading version 7", 9)
        for age_s in (seen.busy_s, seen.work_s, seen.progress_age_s):
            assert age_s == pytest.approx(2.0, abs=0.2)


def test_the_rows_of_a_frozen_host_age_until_it_is_lost(three: Machines) -> None:
    three.cables["b"].is_held = True
    three.run(2.0)
    seen = three.benches["a"].row("rollout-1")
    assert seen.state is ActorState.RUNNING
    assert seen.beat_age_s == pytest.approx(2.0, abs=0.6)
    three.run(LEASE_S - 1.5)
    for host in ("a", "c"):
        seen = three.benches[host].row("rollout-1")
        assert (seen.state, seen.ready) == (ActorState.STOPPED, False), host
        assert "host 'b' is lost: nothing was heard of it for 3 s" in seen.last_reason


# ---- rows below a placed supervisor ----


def test_a_shard_of_64_children_appears_and_vanishes_whole(three: Machines) -> None:
    names = [f"environment-{number}" for number in range(64)]
    for name in names:
        three.start("b", Keeper, name, parent="pool")
    three.run(0.3)
    for host in ("a", "c"):
        rows = {row.name: row for row in board(three, host).rows()}
        assert all(rows[name].state is ActorState.RUNNING for name in names), host
        assert {rows[name].parent for name in names} == {"pool"}, host
    three.cables["b"].cut()
    three.run(LEASE_S + 0.3)
    for host in ("a", "c"):
        rows = {row.name: row for row in board(three, host).rows()}
        assert not any(rows[name].state is ActorState.RUNNING for name in (*names, "pool")), host


def test_rows_that_only_the_leader_is_told_of_are_on_no_third_board_and_still_get_answers(
    three: Machines,
) -> None:
    three.start("b", Keeper, "players", parent="placed")
    three.start("b", Keeper, "player-1", parent="players")
    three.start("c", Keeper, "engine", parent="placed")
    three.answer("b", "bridge", Export(name="players", placed=True, is_announced_to_all=False))
    three.answer("c", "bridge", Export(name="engine", placed=True))
    three.run(0.3)
    assert three.benches["a"].row("player-1").parent == "players"
    assert board(three, "c").find("player-1") is None
    asked = three.benches["b"].actor("player-1").ask("engine", Note(text="move"))
    three.run(0.5)
    assert asked.result().text == "move"
    assert three.benches["c"].row("player-1").state is ActorState.RUNNING
    three.benches["b"].kill("player-1")
    three.run(0.3)
    assert three.benches["c"].row("player-1").state is ActorState.STOPPED, "whom it wrote to hears of its end"


def test_a_row_that_another_actor_has_by_now_is_no_more_elsewhere(three: Machines) -> None:
    there, slot = board(three, "b"), slot_of(three, "b", "rollout-1")
    three.benches["b"].kill("rollout-1")
    there.set_state(slot, ActorState.FREE, ended_incarnation=1)
    three.run(0.3)
    assert three.benches["a"].row("rollout-1").state is ActorState.FREE
    there.set(slot, name="rollout-2")
    there.set_state(slot, ActorState.RUNNING, incarnation=2)
    three.run(0.3)
    seen = three.benches["a"].row("rollout-2")
    assert (seen.state, seen.incarnation) == (ActorState.RUNNING, 2)
    assert three.benches["a"].row("rollout-1").state is ActorState.FREE


# ---- mail of sessions that are over, or not known yet ----


def links(three: Machines, host: str) -> Any:
    return three.answer(host, "bridge", WhichLinks())


def letter(three: Machines, text: str, *, epoch: int | None = None, number: int = 1) -> bytes:
    """A message of `pool` on b to `keeper` on c."""
    channel = three.bridge("c").channel_to("b")
    own = three.bridge("c").sessions["a"].epoch
    incarnation = three.benches["b"].row("pool").incarnation
    payload = b"\x81\xa4text" + bytes((0xA0 + len(text),)) + text.encode()
    name = "tests.unit.actors.test_rows_of_other_hosts.Note"
    body = Carry(0, 1, "keeper@c", 0, "pool", incarnation, 0, name, payload)
    return pack(Frame(LINK_VERSION, channel.epoch if epoch is None else epoch, own, number, body))


@pytest.fixture
def keeper(three: Machines) -> Keeper:
    keeper: Keeper = three.start("c", Keeper, "keeper")
    three.answer("c", "bridge", Export(name="keeper"))
    return keeper


def test_late_mail_of_a_lost_session_is_refused_and_counted_at_a_third_host(
    three: Machines, keeper: Keeper
) -> None:
    old = letter(three, "late")
    three.deliver("b", "c", letter(three, "in time"))
    assert keeper.notes == ["in time"]
    three.cables["b"].cut()
    three.run(LEASE_S + 0.3)
    late = links(three, "c").late
    three.deliver("b", "c", old)
    assert (keeper.notes, links(three, "c").late) == (["in time"], late + 1)
    three.cables["b"].heal()
    three.run(5 * LEASE_S)
    three.deliver("b", "c", old)
    assert (keeper.notes, links(three, "c").late) == (["in time"], late + 2), "in its next session too"


def test_mail_for_an_earlier_life_of_its_receiver_is_refused(three: Machines, keeper: Keeper) -> None:
    old = letter(three, "for the one before")
    three.benches["c"].kill("bridge")
    three.start_bridge("c", lease_s=LEASE_S, exports=["keeper"])
    three.run(1.0)
    late = links(three, "c").late
    three.deliver("b", "c", old)
    assert (keeper.notes, links(three, "c").late) == ([], late + 1)


def test_a_letter_that_comes_twice_is_taken_once(three: Machines, keeper: Keeper) -> None:
    once = letter(three, "once")
    for _ in range(3):
        three.deliver("b", "c", once)
    assert keeper.notes == ["once"]
    assert links(three, "c").late == 2


def test_mail_of_a_session_that_the_leader_is_about_to_tell_of_is_held_and_then_taken_in_order(
    three: Machines, keeper: Keeper
) -> None:
    three.cables["a"].is_held = True
    three.benches["b"].kill("bridge")
    three.start_bridge("b", lease_s=LEASE_S)
    three.run(0.5)
    coming = three.bridge("a").sessions["b"].epoch
    for number, text in enumerate(("first", "second"), 2):
        three.deliver("b", "c", letter(three, text, epoch=coming, number=number))
    assert (keeper.notes, links(three, "c").early) == ([], 2)
    introduction = Frame(LINK_VERSION, coming, three.bridge("c").sessions["a"].epoch, 1, Rows((row("pool"),)))
    three.bridge("c")._early._held["b"].appendleft(
        (three.benches["c"].clock.monotonic_s(), pack(introduction))
    )
    three.cables["a"].is_held = False
    three.run(0.3)
    assert (keeper.notes, links(three, "c").early) == (["first", "second"], 0)


def test_mail_of_a_session_that_the_leader_never_tells_of_is_dropped_after_a_lease_and_counted(
    three: Machines, keeper: Keeper
) -> None:
    unknown = three.bridge("c").channel_to("b").epoch + 7
    for number in range(EARLY_FRAMES + 3):
        data = letter(three, "x", epoch=unknown, number=number + 1)
        three.bridge("c").take_frame("b", data)
    before = links(three, "c")
    assert (before.early, before.late) == (EARLY_FRAMES, 3), "and no more than so many are held"
    three.run(LEASE_S + 0.2)
    after = links(three, "c")
    assert (after.early, after.late, keeper.notes) == (0, EARLY_FRAMES + 3, [])


def test_a_host_that_its_agent_reports_gone_is_lost_at_once(three: Machines) -> None:
    three.deliver("b", "a", b"")
    three.run(0.1)
    seen = three.benches["a"].row("rollout-1")
    assert (seen.state, seen.last_reason) == (ActorState.STOPPED, "host 'b' is lost: its agent is gone")
    assert three.benches["c"].row("rollout-1").state is ActorState.STOPPED


def test_names_of_a_lost_host_are_forgotten_everywhere_and_come_back_with_it(
    three: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.directory.PART_OF_LOST_HOSTS", 0)
    monkeypatch.setattr("actors.directory.LOST_NAMES_KEPT_S", 2.0)
    three.cables["b"].cut()
    three.run(LEASE_S + 1.0)
    assert three.benches["a"].row("bridge@b").state is ActorState.STOPPED
    three.run(2.0)
    for host in ("a", "c"):
        rows = {row.name: row.state for row in three.benches[host].board.rows()}
        assert rows["bridge@b"] is ActorState.FREE
        assert rows["rollout-1"] is ActorState.STOPPED, "a plain name is kept"
    three.cables["b"].heal()
    three.run(3.0)
    for host in ("a", "c"):
        assert three.benches[host].row("bridge@b").state is ActorState.RUNNING
        assert three.answer(host, "bridge@b", WhichLinks()).host == "b"


def test_a_follower_obeys_its_agent_about_the_leader_and_leaves_others_to_the_leader(three: Machines) -> None:
    three.deliver("c", "b", b"")
    assert set(three.bridge("b").sessions) == {"a"}
    assert three.bridge("b").channel_to("c") is not None
    three.deliver("a", "b", b"")
    assert three.bridge("b").channel_to("c") is None
    assert three.benches["b"].row("store").last_reason == "host 'a' is lost: its agent is gone"


def test_a_host_without_its_leader_refuses_mail_of_others(three: Machines, keeper: Keeper) -> None:
    old = letter(three, "meanwhile")
    three.cables["a"].cut()
    three.run(LEASE_S + 0.3)
    late = three.bridge("c").late
    three.deliver("b", "c", old)
    assert (keeper.notes, three.bridge("c").late) == ([], late + 1)
    with pytest.raises((Refused, ActorDied)):
        three.answer("c", "rollout-1", Note(text="hi"))


# ---- a wire that breaks its promise ----


def lose_next(three: Machines, sender: str, to: str) -> None:
    """Lose whatever is on the way between two hosts now."""
    three.on_the_way[sender, to].clear()


def test_a_session_of_which_frames_were_lost_is_opened_anew_and_every_row_is_told_again(
    three: Machines,
) -> None:
    epoch = three.bridge("a").sessions["b"].epoch
    three.cables["a"].is_held = True
    three.start("a", Keeper, "writer", parent="store")
    three.run(0.2)
    lose_next(three, "a", "b")
    three.cables["a"].is_held = False
    three.run(3.0)
    assert three.bridge("a").sessions["b"].epoch > epoch
    for name in ("store", "writer", "bridge@a", "bridge@c"):
        assert three.benches["b"].row(name).state is ActorState.RUNNING, name


def test_rows_that_were_told_behind_a_welcome_that_was_lost_are_told_again(three: Machines) -> None:
    three.cables["b"].cut()
    three.run(LEASE_S + 0.2)
    three.cables["b"].loses_up = False
    three.run(0.6)  # its Hello arrives, the Welcome and the rows behind it do not
    three.cables["b"].heal()
    three.run(3.0)
    for name in ("store", "bridge@a", "bridge@c"):
        assert three.benches["b"].row(name).state is ActorState.RUNNING, name


def test_a_writer_whose_introduction_to_a_third_host_was_lost_is_introduced_again(
    three: Machines, keeper: Keeper
) -> None:
    three.start("b", Keeper, "player", parent="placed")
    three.answer("b", "bridge", Export(name="player", placed=True, is_announced_to_all=False))
    three.run(0.2)
    player = three.benches["b"].actor("player")
    three.cables["b"].is_held = True
    player.tell("keeper@c", Note(text="lost"))
    three.run(0.1)
    lose_next(three, "b", "c")
    three.cables["b"].is_held = False
    player.tell("keeper@c", Note(text="refused"))
    three.run(0.3)
    player.tell("keeper@c", Note(text="taken"))
    three.run(0.3)
    assert keeper.notes == ["taken"]


def test_a_writer_that_becomes_a_placed_actor_is_introduced_again_by_its_plain_name(
    three: Machines, keeper: Keeper
) -> None:
    three.start("b", Keeper, "player", parent="placed")
    player = three.benches["b"].actor("player")
    three.run(0.2)
    player.tell("keeper@c", Note(text="of player@b"))
    three.run(0.3)
    three.answer("b", "bridge", Export(name="player", placed=True, is_announced_to_all=False))
    player.tell("keeper@c", Note(text="of player"))
    three.run(0.3)
    assert keeper.notes == ["of player@b", "of player"]


# ---- rows that move ----


def test_a_child_that_starts_late_where_its_shard_was_moved_to_is_passed_on_as_of_its_new_host(
    three: Machines,
) -> None:
    three.cables["b"].cut()
    three.run(LEASE_S + 0.3)
    number = 50 << 20
    for name, parent in (("pool", "placed"), ("rollout-1", "pool")):
        slot = board(three, "c").claim(name, parent)
        board(three, "c").set_state(slot, ActorState.STOPPED, route=0, incarnation=number)
        three.start("c", Keeper, name, parent=parent)
        three.answer("c", "bridge", Export(name="pool", placed=True))
        three.run(0.3)
    leader = three.bridge("a")
    assert leader.directory.host_of("rollout-1") == "c"
    assert leader.announced._rows[slot_of(three, "a", "rollout-1")].host == "c"


def test_a_leader_whose_bridge_is_started_anew_passes_on_what_it_hears_again(three: Machines) -> None:
    three.benches["a"].kill("bridge")
    three.start_bridge("a", lease_s=LEASE_S, services=["store"])
    three.run(2.0)
    for host, name in (("b", "bridge@c"), ("c", "bridge@b")):
        assert three.benches[host].row(name).state is ActorState.RUNNING, name


# ---- how much is said ----


def test_what_is_said_of_64_rows_a_second_is_bounded(three: Machines) -> None:
    for number in range(62):
        three.start("b", Keeper, f"environment-{number}", parent="pool")
    three.run(1.0)
    before = three.sent_bytes["b", "a"]
    three.run(10.0)
    assert 0 < three.sent_bytes["b", "a"] - before < 10 * 6000


def test_rows_of_other_hosts_are_learned_and_found_on_a_board_of_65_536(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = Board.create(tmp_path / "large", 65_536)
    with machines(tmp_path, "b", lease_s=LEASE_S) as two:
        directory = two.bridge("a").directory
        monkeypatch.setattr(directory, "_board", large)
        monkeypatch.setattr(Board, "_scan_for", None)
        for number in range(2000):
            assert directory.learn("b", row(f"e-{number}", slot=number), speaks_for_others=False) == ""
        mail = Mail(large, tmp_path, b"k" * 32)
        assert mail.resolve("e-1999") == (1999, 1)
        assert directory.host_of("e-1234") == "b"
        mail.close()
    large.close()


def test_a_beat_and_a_frame_of_rows_fit_the_wire() -> None:
    assert GAUGES == 4
    long = row("n" * 64, parent="p" * 64, reason="r" * 384, ended_reason="e" * 80, last_error="l" * 120)
    assert len(pack(Frame(LINK_VERSION, 2**62 - 1, 2**62 - 1, 2**62 - 1, Rows((long,) * 48)))) < 64 * 1024
    assert len(pack(Frame(LINK_VERSION, 1, 1, 1, Beat()))) < 16


def test_what_the_leader_knows_of_lost_hosts_is_told_before_its_next_mail(
    three: Machines, keeper: Keeper
) -> None:
    """An order that follows from a loss must not find the lost host's names living."""
    three.cables["a"].is_held = True
    three.run(0.1)
    leader = three.bridge("a")
    leader.lose(leader.sessions["b"], "for a test")
    three.benches["a"].tell("keeper@c", Note(text="go"))
    three.run(0.2)
    said = [type(unpack(frame).body) for _, frame in three.on_the_way["a", "c"]]
    assert said.index(Peers) < said.index(Carry)
