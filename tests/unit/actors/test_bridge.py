"""Mail between hosts, their leases and what they may say of each other; no network, no time of its own."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.actor import Actor, Sender, Stop, receives
from actors.board import ActorState
from actors.bridge import FRAMES_S, LATE_GAUGE
from actors.bridge_messages import Export, Exported, LinkDown, Links, LinkUp, WhichLinks
from actors.codec import MAX_MESSAGE_BYTES, MessageKind, message
from actors.directory import PART_OF_ONE_HOST, KnownName
from actors.errors import ActorDied, InvalidHost, MailboxFull, MalformedMessage, Refused
from actors.follower_bridge import FollowerBridge
from actors.leader_bridge import LeaderBridge
from actors.link import Beat, Carry, Hello, Row, Rows, before_session, unpack
from actors.monitors import Down, Exit
from actors.timers import Timers
from tests.unit.actors.machines import Machines, machines
from tests.unit.actors.rows import row

LEASE_S = 3.0
BOUND_S = LEASE_S + 0.2


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    text: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    text: str
    to: str


class Talker(Actor):
    """Answers, except to silence; passes on to whom it is told."""

    def on_start(self) -> None:
        self.heard: list[str] = []

    @receives(Say)
    async def say(self, call: Say, sender: Sender) -> Said:
        self.heard.append(call.text)
        if call.text == "silence":
            await self.sleep(1e6)
        if call.text.startswith("ask "):
            answer: Said = await self.ask(call.text.removeprefix("ask "), Say(text="passed on"))
            return answer
        return Said(text=call.text, to=sender.name)


class Witness(Actor):
    """Sees others end."""

    traps_exits = True

    def on_start(self) -> None:
        self.news: list[Down | Exit] = []

    @receives(Down)
    def down(self, news: Down, sender: Sender) -> None:
        self.news.append(news)

    @receives(Exit)
    def exit(self, news: Exit, sender: Sender) -> None:
        self.news.append(news)


class Watcher(Actor):
    """Keeps what its bridge told it."""

    def on_start(self) -> None:
        self.news: list[Any] = []

    @receives(LinkUp)
    def up(self, news: LinkUp, sender: Sender) -> None:
        self.news.append(news)

    @receives(LinkDown)
    def down(self, news: LinkDown, sender: Sender) -> None:
        self.news.append(news)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Machines]:
    with machines(tmp_path, "b", "c", lease_s=LEASE_S) as three:
        for host, name in (("a", "here"), ("b", "there"), ("c", "yonder")):
            three.start(host, Talker, name)
            three.answer(host, "bridge", Export(name=name))
        three.run(0.3)
        yield three


def links(three: Machines, host: str = "a") -> Links:
    vitals: Links = three.answer(host, "bridge", WhichLinks())
    return vitals


def epoch(three: Machines, host: str) -> int:
    return three.bridge("a").sessions[host].epoch


# ---- mail ----


def test_an_ask_crosses_and_its_answer_comes_back(three: Machines) -> None:
    assert three.answer("a", "there@b", Say(text="hi")) == Said(text="hi", to="asker@a")
    assert three.answer("b", "here@a", Say(text="hi")) == Said(text="hi", to="asker@b")


def test_two_followers_talk_straight_to_each_other_and_the_leader_carries_nothing(three: Machines) -> None:
    before = sum(link.carried for link in links(three).links)
    assert three.answer("b", "yonder@c", Say(text="hi")) == Said(text="hi", to="asker@b")
    three.cables["a"].is_held = True
    assert three.answer("b", "yonder@c", Say(text="again")) == Said(text="again", to="asker@b")
    assert sum(link.carried for link in links(three).links) == before


def test_an_actor_asks_on_behalf_of_one_on_a_third_machine(three: Machines) -> None:
    assert three.answer("a", "there@b", Say(text="ask yonder@c")) == Said(text="passed on", to="there@b")


def test_a_placed_actor_bears_its_plain_name_everywhere_also_as_a_sender(three: Machines) -> None:
    three.start("b", Talker, "env-1")
    assert three.answer("b", "bridge", Export(name="env-1", placed=True)) == Exported(name="env-1")
    three.run(0.3)
    assert three.answer("a", "env-1", Say(text="hi")).text == "hi"
    assert three.answer("c", "env-1", Say(text="ask here@a")) == Said(text="passed on", to="env-1")


def test_a_name_nobody_exported_is_refused_with_the_reason(three: Machines) -> None:
    three.start("b", Talker, "secret")
    board = three.benches["a"].board
    slot = board.claim("secret@b", "bridge")
    route = three.benches["a"].row("there@b").route
    board.set_state(slot, ActorState.RUNNING, route=route, incarnation=1)
    three.bridge("a").directory._names["secret@b"] = KnownName("b", is_announced_to_all=True)
    with pytest.raises(Refused, match="host 'b' exports no actor named 'secret'"):
        three.answer("a", "secret@b", Say(text="hi"))
    assert three.benches["b"].actor("secret").heard == []


def test_what_is_not_understood_over_there_is_refused_over_there(three: Machines) -> None:
    with pytest.raises(Refused, match="'there' has no handler for WhichLinks"):
        three.answer("a", "there@b", WhichLinks())


def test_the_death_of_an_actor_over_there_ends_the_asks_for_it_here(three: Machines) -> None:
    asked = three.ask("a", "there@b", Say(text="silence"))
    three.run(0.2)
    three.benches["b"].kill("there")
    three.benches["b"].board.set_state(three.benches["b"].board.find("there"), ActorState.STOPPED)
    three.run(0.4)
    with pytest.raises(ActorDied, match="there@b"):
        asked.result()
    with pytest.raises(ActorDied):
        three.answer("a", "there@b", Say(text="hi"))


def test_an_actor_that_was_restarted_over_there_is_found_again(three: Machines) -> None:
    before = three.benches["a"].row("there@b").incarnation
    three.benches["b"].kill("there")
    three.start("b", Talker, "there")
    three.run(0.2)
    assert three.benches["a"].row("there@b").incarnation == before + 1
    assert three.answer("a", "there@b", Say(text="again")).text == "again"


def test_a_monitor_and_a_link_tell_of_the_loss_of_another_machine(three: Machines) -> None:
    witness, partner = three.start("a", Witness, "witness"), three.start("c", Witness, "partner")
    three.answer("c", "bridge", Export(name="partner"))
    three.run(0.2)
    witness.monitor("there@b")
    witness.link("partner@c")
    three.run(0.5)
    assert witness.news == partner.news == []
    three.cables["a"].cut()
    three.run(BOUND_S + 0.5)
    assert [(type(news), news.name) for news in sorted(witness.news, key=lambda n: n.name)] == [
        (Down, "there@b"),
        (Exit, "partner@c"),
    ][::-1]
    assert [(type(news), news.name) for news in partner.news] == [(Exit, "witness@a")], "both ways"
    for news in witness.news + partner.news:
        assert "is lost: nothing was heard of it for 3 s" in news.reason


def test_a_name_that_would_be_too_long_elsewhere_is_refused_here_and_hurts_nobody(three: Machines) -> None:
    long = "x" * 63
    three.start("a", Talker, long)
    with pytest.raises(Refused, match="is too long for other hosts; give it a shorter name"):
        three.answer("a", long, Say(text="ask there@b"))
    assert three.answer("a", "there@b", Say(text="hi")).text == "hi"


@pytest.mark.parametrize("kind", [LeaderBridge, FollowerBridge])
@pytest.mark.parametrize("host", ["", "b@c", "x" * 25])
def test_a_host_has_a_short_name_without_an_at_sign(
    tmp_path: Path, host: str, kind: type[LeaderBridge | FollowerBridge]
) -> None:
    together = Machines(tmp_path, ("b",))
    with together, pytest.raises(InvalidHost, match="a host's name must have 1 to 24 bytes"):
        together.start("b", kind, "bridge", host="b" if kind is FollowerBridge else host, leader=host)


def test_a_follower_is_not_its_own_leader(tmp_path: Path) -> None:
    with Machines(tmp_path, ("b",)) as together, pytest.raises(InvalidHost, match="leader's own name"):
        together.start_bridge("b", leader="b")


def test_a_capability_that_makes_no_sense_is_named_where_it_was_declared(tmp_path: Path) -> None:
    with Machines(tmp_path, ("b",)) as together, pytest.raises(MalformedMessage, match=r"`int` >= 0"):
        together.start_bridge("b", capabilities={"gpu": -1})


# ---- leases ----


def test_a_cut_is_noticed_on_both_sides_within_the_lease_and_ends_every_ask(three: Machines) -> None:
    asked = [three.ask("a", "there@b", Say(text="silence"), deadline_s=60.0)]
    asked += [three.ask("b", name, Say(text="silence"), deadline_s=60.0) for name in ("here@a", "yonder@c")]
    three.run(0.2)
    three.cables["b"].cut()
    three.run(LEASE_S * 0.6)
    assert not any(ask.is_done for ask in asked), "a short silence is forgiven"
    three.run(BOUND_S - LEASE_S * 0.6)
    for ask in asked:
        with pytest.raises(ActorDied, match="is lost: nothing was heard of it for 3 s"):
            ask.result()
    for host in ("a", "c"):
        row = three.benches[host].row("there@b")
        assert (row.state, row.ready) == (ActorState.STOPPED, False), f"on {host}"
        assert "host 'b' is lost" in row.last_reason
    assert [link.host for link in links(three).links] == ["c"]
    assert three.answer("a", "yonder@c", Say(text="still")).text == "still"


@pytest.mark.parametrize("deaf", ["up", "down"])
def test_a_cut_of_one_direction_is_a_cut(three: Machines, deaf: str) -> None:
    setattr(three.cables["b"], f"loses_{deaf}", True)
    three.run(2 * BOUND_S)
    for host, name in (("a", "there@b"), ("b", "here@a"), ("b", "yonder@c"), ("c", "there@b")):
        assert three.benches[host].row(name).state is ActorState.STOPPED, f"{name} on {host}"


def test_a_slow_link_is_no_lost_link(three: Machines) -> None:
    before = epoch(three, "b")
    three.cables["b"].delay_s = 0.2
    three.run(3 * LEASE_S)
    assert three.answer("a", "there@b", Say(text="slow")).text == "slow"
    assert epoch(three, "b") == before
    assert links(three).late == 0


def test_what_a_lost_host_sent_arrives_late_and_is_refused_and_counted(three: Machines) -> None:
    old = epoch(three, "b")
    three.cables["b"].is_held = True
    three.run(0.3)
    assert three.benches["b"].tell("here@a", Say(text="late result"))
    three.run(BOUND_S)
    assert "b" not in three.bridge("a").sessions
    three.cables["b"].is_held = False
    three.run(0.2)
    assert three.benches["a"].actor("here").heard == []
    assert links(three).late > 0
    assert three.benches["a"].row("bridge").gauges[LATE_GAUGE] > 0, "for all who read the board"
    three.run(5 * LEASE_S)
    assert epoch(three, "b") > old
    assert three.benches["a"].actor("here").heard == [], "and it never comes"
    assert three.answer("b", "here@a", Say(text="in time")).text == "in time"


def test_a_healed_link_is_opened_under_a_higher_epoch_and_all_its_names_are_back(three: Machines) -> None:
    old = epoch(three, "b")
    three.cables["b"].cut()
    three.run(BOUND_S)
    three.cables["b"].heal()
    three.run(5 * LEASE_S)
    assert epoch(three, "b") > old
    assert three.answer("a", "there@b", Say(text="hi")).text == "hi"
    assert three.answer("c", "there@b", Say(text="hi")).text == "hi"


def test_whoever_wants_to_know_is_told_of_every_link_with_its_epoch(tmp_path: Path) -> None:
    with machines(tmp_path, "b", lease_s=LEASE_S, tells=["watcher"], capabilities={"gpu": 1}) as two:
        watcher = two.start("a", Watcher, "watcher")
        two.cables["b"].cut()
        two.run(BOUND_S)
        two.cables["b"].heal()
        two.run(5 * LEASE_S)
        down, up = watcher.news
        assert (down.host, down.reason) == ("b", "nothing was heard of it for 3 s")
        assert up == LinkUp(host="b", epoch=down.epoch + 1, capabilities={"gpu": 1})


def test_a_bridge_that_is_told_to_stop_says_so_and_nobody_waits_for_the_lease(three: Machines) -> None:
    three.bridge("b").on_stop()
    three.run(0.2)
    assert three.benches["a"].row("there@b").last_reason.endswith("the bridge of 'b' was ordered to stop")


# ---- restarts ----


def test_a_restarted_leader_opens_every_session_anew_above_the_old_epochs(three: Machines) -> None:
    old = epoch(three, "b")
    three.benches["a"].kill("bridge")
    three.start_bridge("a", lease_s=LEASE_S, exports=["here"])
    assert three.benches["a"].row("there@b").state is ActorState.STOPPED
    three.run(2.0)
    assert epoch(three, "b") > old
    assert three.answer("a", "there@b", Say(text="hi")).text == "hi"
    assert three.answer("b", "here@a", Say(text="hi")).text == "hi"


def test_a_restarted_follower_is_welcome_under_a_higher_epoch_at_once(three: Machines) -> None:
    old = epoch(three, "b")
    three.benches["b"].kill("bridge")
    three.start_bridge("b", lease_s=LEASE_S, exports=["there"])
    three.run(0.5)
    assert epoch(three, "b") > old
    assert three.answer("a", "there@b", Say(text="hi")).text == "hi"


# ---- what a host may not do ----


def frame_from_b(three: Machines, body: Any, to: str = "a") -> None:
    bridge = three.bridge("b")
    bridge.say(bridge.channel_to(to), body)
    three.run(0.2)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (row("x@c"), "another host's name"),
        (row("x", host="c"), "an actor that lives on another host"),
        (row("x@a"), "a name of the leader"),
        (row("here", incarnation=9), "a living actor of the leader, as if it were placed"),
        (row("ü" * 40 + "@b"), "too long"),
    ],
    ids=["of another host", "on another host", "of the leader", "alive here", "over 64 bytes"],
)
def test_a_host_announces_only_what_is_its_own(three: Machines, told: Row, why: str) -> None:
    before = three.bridge("a").sessions["b"].refused
    frame_from_b(three, Rows((told,)))
    assert three.bridge("a").sessions["b"].refused == before + 1, why
    assert three.answer("a", "here", Say(text="unhurt")).text == "unhurt"


def test_a_placed_actor_that_was_replaced_meanwhile_cannot_come_back(three: Machines) -> None:
    frame_from_b(three, Rows((row("env-1", incarnation=5 << 20),)))
    three.cables["b"].cut()
    three.run(BOUND_S)
    three.cables["b"].heal()
    three.run(5 * LEASE_S)
    frame_from_b(three, Rows((row("env-1", incarnation=5 << 20),)))
    assert three.benches["a"].row("env-1").state is ActorState.STOPPED, "declared dead is dead"
    frame_from_b(three, Rows((row("env-1", incarnation=6 << 20),)))
    assert three.benches["a"].row("env-1").state is ActorState.RUNNING


def test_a_placed_actor_that_still_runs_here_hides_its_successor_elsewhere_until_it_ends(
    three: Machines,
) -> None:
    bench = three.benches["c"]
    three.start("c", Talker, "env-1")
    frame_from_b(three, Rows((row("env-1", incarnation=9 << 20),)))
    assert bench.row("env-1").route == 0
    assert three.answer("c", "env-1", Say(text="old")).to == "asker"
    bench.kill("env-1")
    bench.board.set_state(bench.row("env-1").slot, ActorState.STOPPED)
    three.run(0.2)
    assert bench.row("env-1").route > 0
    assert bench.row("env-1").incarnation == 9 << 20


@pytest.mark.parametrize("to", ["a", "c"])
def test_a_host_cannot_write_in_anothers_name(three: Machines, to: str) -> None:
    receiver = {"a": "here@a", "c": "yonder@c"}[to]
    channel = three.bridge(to).channel_to("b")
    for sender in ("host@c" if to == "a" else "here@a", "here", "nobody@b"):
        before = channel.refused
        frame_from_b(three, Carry(0, 1, receiver, 0, sender, 1, 0, "m.M", b"\x80"), to)
        assert channel.refused == before + 1
    assert three.benches[to].actor(receiver.partition("@")[0]).heard == []


def test_a_host_that_announces_name_after_name_leaves_rows_to_the_others(three: Machines) -> None:
    board = three.benches["a"].board
    for first in range(0, board.slots, 40):
        frame_from_b(three, Rows(tuple(row(f"n{first + i}@b", slot=2000 + first + i) for i in range(40))))
    assert len([one for one in board.rows() if one.name.endswith("@b")]) == board.slots * PART_OF_ONE_HOST
    assert three.bridge("a").sessions["b"].refused >= board.slots * (1 - PART_OF_ONE_HOST)
    three.start("c", Talker, "another")
    three.answer("c", "bridge", Export(name="another"))
    three.run(0.2)
    assert three.answer("a", "another@c", Say(text="unhurt")).text == "unhurt"


def test_bytes_that_are_no_frame_are_counted_and_harm_nothing(three: Machines) -> None:
    before = epoch(three, "b")
    three.deliver("b", "a", b"\xc1 garbage")
    assert links(three).malformed == 1
    assert epoch(three, "b") == before


# ---- mail that cannot be handed over, or makes no sense ----


def carry_from_b(three: Machines, **changed: Any) -> None:
    body: dict[str, Any] = {
        "kind": int(MessageKind.ASK),
        "id": 7,
        "to": "here@a",
        "to_incarnation": three.benches["a"].row("here").incarnation,
        "sender": "there@b",
        "sender_incarnation": three.benches["b"].row("there").incarnation,
        "left_ms": 5000,
        "message": "tests.unit.actors.test_bridge.Say",
        "payload": msgspec.msgpack.encode({"text": "hi"}),
    }
    frame_from_b(three, Carry(**(body | changed)))


def test_an_answer_to_an_asker_that_has_just_ended_leaves_the_bridge_alive(three: Machines) -> None:
    three.start("a", Talker, "curious")
    three.cables["b"].delay_s = 0.2
    three.ask("a", "curious", Say(text="ask there@b"))
    three.run(0.1)
    three.benches["a"].kill("curious")
    before = three.bridge("a").sessions["b"].refused
    three.run(1.0)
    assert three.bridge("a").sessions["b"].refused == before + 1
    assert three.answer("a", "there@b", Say(text="still")).text == "still"


def test_an_ask_for_one_that_has_just_ended_over_there_is_refused_with_the_reason(three: Machines) -> None:
    three.cables["b"].delay_s = 0.2
    asked = three.ask("b", "here@a", Say(text="hi"))
    three.benches["a"].kill("here")
    three.run(1.3)
    with pytest.raises((Refused, ActorDied), match="here"):
        asked.result()
    assert "b" in three.bridge("a").sessions


def test_a_full_mailbox_over_there_refuses_the_ask_and_the_bridge_lives_on(
    three: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(envelope: Any) -> int:
        raise MailboxFull(f"{envelope.to!r} takes no more messages now")

    monkeypatch.setitem(vars(three.bridge("b")), "forward", full)
    with pytest.raises(Refused, match="host 'b': 'there' takes no more messages now"):
        three.answer("a", "there@b", Say(text="hi"))
    monkeypatch.undo()
    assert three.answer("a", "there@b", Say(text="again")).text == "again"


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": int(MessageKind.REFUSAL), "message": None, "payload": b"\xc0"},
        {"kind": int(MessageKind.REFUSAL), "message": "actors.system_messages.Stop", "payload": b"\x80"},
        {"payload": b""},
        {"payload": b"\xc0\xc0"},
        {"payload": b"\xc1"},
        {"to_incarnation": 2**61},
        {"left_ms": 2**62 - 1, "payload": b"\xc1"},
        {"message": "actors.system_messages.Stop", "payload": b"\x80"},
        {"to": "bridge@a", "to_incarnation": 1, "message": "actors.bridge_messages.Export"},
        {"message": "actors.bridge_messages.LinkDown"},
        {"payload": msgspec.msgpack.encode({"text": "x" * (MAX_MESSAGE_BYTES - 8)})},
    ],
)
def test_mail_that_makes_no_sense_or_is_not_for_other_machines_is_counted_and_ends_nobody(
    three: Machines, changed: dict[str, Any]
) -> None:
    before = three.bridge("a").sessions["b"].refused
    carry_from_b(three, **changed)
    assert three.bridge("a").sessions["b"].refused == before + 1
    assert three.benches["a"].actor("here").heard == []
    assert three.answer("b", "here@a", Say(text="unhurt")).text == "unhurt"


@pytest.mark.parametrize("changed", [{"kind": 9}, {"left_ms": 2**63}, {"left_ms": -1}])
def test_mail_that_is_no_frame_is_malformed_and_ends_nobody(three: Machines, changed: dict[str, Any]) -> None:
    carry_from_b(three, **changed)
    assert links(three).malformed == 1
    assert three.answer("b", "here@a", Say(text="unhurt")).text == "unhurt"


def test_the_longest_deadline_there_is_crosses(three: Machines) -> None:
    carry_from_b(three, left_ms=2**62 - 1)
    assert three.benches["a"].actor("here").heard == ["hi"]


def test_nobody_on_another_machine_exports_a_name_or_ends_an_actor(three: Machines) -> None:
    for order in (Export(name="root"), Stop()):
        with pytest.raises(Refused, match="is not accepted from another host"):
            three.answer("b", "bridge@a", order)
    assert not three.bridge("a").announced.is_announced("root")


def test_a_frame_of_an_earlier_session_changes_nothing_about_the_one_that_is_open(three: Machines) -> None:
    old_frame = three.bridge("b").sessions["a"].say(Beat())
    three.cables["b"].cut()
    three.run(BOUND_S)
    three.cables["b"].heal()
    three.run(5 * LEASE_S)
    before, late = epoch(three, "b"), links(three).late
    asked = three.ask("a", "there@b", Say(text="first"))
    three.deliver("b", "a", old_frame)
    after = three.ask("a", "there@b", Say(text="second"))
    three.run(0.5)
    assert (asked.result().text, after.result().text) == ("first", "second")
    assert (epoch(three, "b"), links(three).late) == (before, late + 1)


def test_a_follower_that_is_not_answered_says_hello_again_and_gets_one_session(three: Machines) -> None:
    cable = three.cables["b"]
    cable.loses_down = True
    three.run(LEASE_S + 1.0)
    cable.heal()
    three.run(2.0)
    assert three.answer("a", "there@b", Say(text="hi")).text == "hi"
    cable.cut()
    three.run(BOUND_S)
    cable.heal()
    cable.is_held = True
    three.run(2.5)  # more than one Hello is on the way
    before = three.bridge("a")._epochs["b"]
    cable.is_held = False
    three.run(2.0)
    assert epoch(three, "b") == before + 1
    assert three.answer("a", "there@b", Say(text="hi")).text == "hi"


def test_a_name_whose_supervisor_forgot_it_is_not_held_for_living_elsewhere(three: Machines) -> None:
    bench = three.benches["b"]
    bench.kill("there")
    slot = bench.row("there").slot
    bench.board.set_state(slot, ActorState.STOPPED)
    bench.board.set(slot, name="")
    bench.board._slots.clear()
    three.run(0.3)
    for host in ("a", "c"):
        row = three.benches[host].row("there@b")
        assert (row.state, row.ready) == (ActorState.FREE, False), host
    assert three.answer("a", "yonder@c", Say(text="unhurt")).text == "unhurt"


@pytest.mark.parametrize("state", [ActorState.BACKOFF, ActorState.QUARANTINED])
def test_a_name_that_waits_for_its_restart_is_not_taken_by_another_machine(
    three: Machines, state: ActorState
) -> None:
    bench = three.benches["a"]
    bench.kill("here")
    bench.board.set_state(bench.row("here").slot, state)
    frame_from_b(three, Rows((row("here", incarnation=9 << 20),)))
    assert (bench.row("here").route, bench.row("here").state) == (0, state)


def test_the_links_of_a_thousand_hosts_are_told_a_part_at_a_time(three: Machines) -> None:
    leader = three.bridge("a")
    for number in range(1000):
        leader.sessions[f"host-{number}"] = replace(leader.sessions["b"], host=f"host-{number}")
    told: list[str] = []
    while True:
        part: Links = three.answer("a", "bridge", WhichLinks(offset=len(told)))
        told += [link.host for link in part.links]
        if len(told) == part.total:
            break
    assert told == list(leader.sessions)


# ---- a link that is full ----


class Narrow:
    """A wire that takes no large frame now."""

    fds = ()
    malformed = 0

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.sent: list[Any] = []

    def receive(self) -> tuple[str, bytes] | None:
        return None

    def send(self, host: str, frame: bytes) -> bool:
        is_taken = len(frame) <= self._most_bytes
        if is_taken:
            self.sent.append(unpack(frame).body)
        return is_taken

    def close(self, linger_s: float = 0.0) -> None:
        """Nothing to close."""


def test_mail_does_not_overtake_the_news_that_it_follows_from(
    three: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = three.bridge("a")
    three.answer("a", "there@b", Say(text="hi"))
    leader.lose(leader.sessions["c"], "for a test " * 30)
    wire = Narrow(most_bytes=250)
    monkeypatch.setattr(leader, "wire", wire)
    asked = three.ask("a", "there@b", Say(text="after that"))
    three.run(0.05)
    assert not [body for body in wire.sent if isinstance(body, Carry)]
    with pytest.raises(Refused, match="the link to 'b' takes no more"):
        asked.result()


# ---- a bridge with much to do ----


class Flood:
    """A wire with more frames than one turn takes. Each takes a bridge a moment."""

    fds = ()
    malformed = 0

    def __init__(self, three: Machines, frames: int, takes_s: float) -> None:
        self._clock = three.benches["a"].clock
        self._left = frames
        self._takes_s = takes_s

    def receive(self) -> tuple[str, bytes] | None:
        self._clock.advance(self._takes_s)
        self._left -= 1
        return None if self._left < 0 else ("b", before_session(Beat()))

    def send(self, host: str, frame: bytes) -> bool:
        return True

    def close(self, linger_s: float = 0.0) -> None:
        """Nothing to close."""


def test_a_leader_that_had_no_time_to_listen_loses_no_host_for_it(
    three: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = three.bridge("a")
    monkeypatch.setattr(leader, "wire", Flood(three, 500, takes_s=0.01))
    leader.tick()
    assert set(leader.sessions) == {"b", "c"}
    monkeypatch.setattr(leader, "wire", Flood(three, 0, takes_s=2 * LEASE_S + 0.1))
    leader.tick()
    assert leader.sessions == {}, "but not for ever"


def test_frames_that_wait_for_the_next_turn_are_drained_by_one_timer(
    three: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = three.bridge("a")
    timers: list[float] = []
    monkeypatch.setattr(leader, "wire", Flood(three, 10_000, takes_s=0.0))
    monkeypatch.setattr(Timers, "after", lambda _, seconds, __: timers.append(seconds))
    for _ in range(3):
        leader.drain()
    assert timers == [0.0]


def test_a_turn_of_frames_ends_soon_however_long_each_takes(
    three: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = three.bridge("a")
    monkeypatch.setattr(leader, "wire", Flood(three, 10_000, takes_s=0.02))
    monkeypatch.setattr(Timers, "after", lambda *_: None)
    before_s = three.benches["a"].clock.monotonic_s()
    leader.drain()
    assert three.benches["a"].clock.monotonic_s() - before_s < 2 * FRAMES_S


def test_a_hello_that_comes_late_has_nothing_told_again(three: Machines) -> None:
    leader = three.bridge("a")
    session = leader.sessions["b"]
    said = session.said_bytes
    leader.take_frame("b", before_session(Hello("b", {}, 0, session.attempt)))
    assert leader.sessions["b"] is session
    assert session.said_bytes == said
