"""`Hosts` and `HostSupervisor` on three hosts of memory: placement, loss, return, and late orders."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from actors.actor import Actor, Sender, Stop, receives
from actors.board import INCARNATIONS_PER_PLACEMENT, LIVING, ActorState, Board
from actors.bridge_messages import LinkDown, LinkUp
from actors.codec import MAX_MESSAGE_BYTES, from_plain, to_plain
from actors.errors import Refused
from actors.future import Future
from actors.link import Carry, machine_row
from actors.testing import InMemorySystem
from supervision import placement_failure, reports
from supervision.child_spec import Backoff, Breaker, Budget, ChildSpec, Restart, SupervisorFlags
from supervision.host_answers import CARRIED_PER_HOST
from supervision.host_messages import (
    Carries,
    Displace,
    HostsNow,
    StartPlaced,
    StopPlaced,
    Whereabouts,
    WhereIs,
    WhichHosts,
    place_actor,
)
from supervision.host_specs import follower_spec, leader_spec
from supervision.host_supervisor import HostSupervisor
from supervision.hosts import AWAIT_HOSTS_S, Hosts
from supervision.messages import ChildInfo, Children, Managed, TerminateChild, WhichChildren
from supervision.placement import RETRY_S, Carried, HostRecord, PlacedSpec
from supervision.supervisor import CHILDREN_PER_ANSWER, Supervisor, supervisor_args, supervisor_spec
from supervision.tree_text import tree_lines
from tests.unit.actors.machines import Machines
from tests.unit.supervision.travellers import Here, Where

LEASE_S = 3.0
TRAVELLERS = "tests.unit.supervision.travellers"
CAPABILITIES: Mapping[str, Mapping[str, int]] = {"a": {"disk": 1}, "b": {"gpu": 1}, "c": {"gpu": 1}}
FLAGS = SupervisorFlags(dynamic=True, ordered=False, max_restarts=3, max_seconds=5.0)


def traveller(name: str = "job", actor: str = "Traveller", **needs: int) -> PlacedSpec:
    path = f"{TRAVELLERS}:{actor}"
    return PlacedSpec(child=ChildSpec(id=name, actor=path, start_deadline_s=2.0), needs=needs)


class Cluster(Machines):
    """Hosts with all that is on them."""

    policy: ClassVar[dict[str, Any]] = {}
    """How `hosts` treats a host that is lost again and again."""

    def up(self, host: str) -> None:
        """What `leader_spec` and `follower_spec` describe, started in their order."""
        own = {"host": host, "capabilities": CAPABILITIES[host]}
        if host == "a":
            self.start(host, Hosts, "hosts", **self.policy)
        self.start(host, Supervisor, "placed", **supervisor_args(FLAGS, ()))
        self.start(host, HostSupervisor, "host", **own, follows=host != "a")
        tells, exports = (["hosts", "host"], ["hosts"]) if host == "a" else (["host"], ["host"])
        self.start_bridge(host, **own, tells=tells, exports=exports, lease_s=LEASE_S)
        self.run(0.5)

    def place(self, spec: PlacedSpec) -> Whereabouts:
        self.answer("a", "hosts", place_actor(spec))
        self.run(0.5)
        return self.where(spec.name)

    def where(self, name: str = "job") -> Whereabouts:
        whereabouts: Whereabouts = self.answer("a", "hosts", WhereIs(name=name))
        return whereabouts

    def hosts(self) -> HostsNow:
        now: HostsNow = self.answer("a", "hosts", WhichHosts())
        return now

    def send_order(self, host: str, order: Any) -> Future[Any]:
        """As the leader's `hosts` gives it."""
        asked: Future[Any] = self.benches["a"].actor("hosts").ask(f"host@{host}", order)
        return asked

    def order(self, host: str, order: Any) -> Any:
        asked = self.send_order(host, order)
        self.run(2.0)
        return asked.result()

    def carried_by(self, host: str) -> set[str]:
        """Who really runs there, whatever anybody believes."""
        rows = self.benches[host].board.rows()
        return {row.name for row in rows if row.parent == "placed" and self.benches[host].is_alive(row.name)}


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, ("b", "c")) as cluster:
        for host in ("a", "b", "c"):
            cluster.up(host)
        yield cluster


def test_an_actor_goes_where_its_capability_is_and_answers_under_its_name_from_everywhere(
    three: Cluster,
) -> None:
    place = three.place(traveller(gpu=1))
    assert (place.host, place.is_up) == ("b", True)
    assert three.carried_by("b") == {"job"}
    expected = Here(incarnation=place.number * INCARNATIONS_PER_PLACEMENT + 1)
    assert [three.answer(host, "job", Where()) for host in "abc"] == [expected] * 3


def test_the_leader_carries_what_only_it_can(three: Cluster) -> None:
    assert three.place(traveller(disk=1)).host == "a"
    assert three.carried_by("a") == {"job"}
    assert [three.answer(host, "job", Where()) for host in "abc"] == [three.answer("a", "job", Where())] * 3


def test_who_finds_no_machine_is_told_why_and_goes_to_the_first_that_comes_with_it(tmp_path: Path) -> None:
    with Cluster(tmp_path, ("b",)) as cluster:
        cluster.up("a")
        assert cluster.place(traveller(gpu=1)).reason == "needs 1 gpu; a declares no gpu"
        cluster.up("b")
        cluster.run(1.0)
        assert cluster.where().host == "b"


def test_a_lost_machines_actors_run_elsewhere_and_no_more_on_it(three: Cluster) -> None:
    first = three.place(traveller(gpu=1))
    old = three.answer("c", "job", Where())
    three.cables["b"].cut()
    three.run(LEASE_S + 1.0)
    second = three.where()
    assert (second.host, second.is_up) == ("c", True)
    assert second.number > first.number
    assert (three.carried_by("b"), three.carried_by("c")) == (set(), {"job"}), "b noticed by itself"
    assert three.answer("a", "job", Where()).incarnation > old.incarnation


def test_a_machine_that_is_back_carries_nothing_old_and_gets_new_work(three: Cluster) -> None:
    three.place(traveller(gpu=1))
    before = {h.host: h.epoch for h in three.hosts().hosts}
    three.cables["b"].cut()
    three.run(LEASE_S + 1.0)
    three.cables["b"].heal()
    three.run(5 * LEASE_S)
    after = {h.host: h for h in three.hosts().hosts}
    assert after["b"].epoch > before["b"]
    assert after["b"].carries == ()
    assert three.answer("b", "job", Where()) == three.answer("a", "job", Where()), "it writes to the new one"
    assert three.place(traveller("second", gpu=1)).host == "b"


def test_with_no_other_machine_an_actor_waits_for_its_own_to_come_back(three: Cluster) -> None:
    three.place(traveller("one", gpu=1))
    three.place(traveller("two", gpu=1))
    three.cables["b"].cut()
    three.run(LEASE_S + 1.0)
    assert three.where("one").reason == "needs 1 gpu; a declares no gpu; c has 0 gpu left beside two"
    three.cables["b"].heal()
    three.run(5 * LEASE_S)
    assert (three.where("one").host, three.where("two").host) == ("b", "c")
    assert three.answer("a", "one", Where()).incarnation > INCARNATIONS_PER_PLACEMENT


def test_what_is_displaced_ends_and_can_be_placed_again(three: Cluster) -> None:
    three.place(traveller(gpu=1))
    gone = three.answer("a", "hosts", Displace(name="job"))
    three.run(1.0)
    assert gone.reason == "no actor 'job' is to be placed; send Place for it first"
    assert three.carried_by("b") == set()
    assert three.place(traveller(gpu=1)).is_up


def test_a_machine_where_it_will_not_start_is_left_for_another_and_tried_again_later(three: Cluster) -> None:
    first = three.place(traveller(actor="Stillborn", gpu=1))
    assert first.host == ""
    why = r"did not start it: .*ZeroDivisionError: as ever"
    assert re.fullmatch(f"needs 1 gpu; a declares no gpu; b {why}; c {why}", first.reason)
    three.run(RETRY_S + 1.5)
    assert three.benches["b"].row("job").incarnation > first.number
    assert three.answer("a", "hosts", WhichHosts()).unplaced == {"job": first.reason}


def test_an_actor_whose_spec_is_too_large_for_mail_is_not_placed_and_the_others_are(three: Cluster) -> None:
    large = traveller("large", disk=1)
    args = {"text": "x" * MAX_MESSAGE_BYTES}
    three.benches["a"].actor("hosts")._core.wanted(replace(large, child=replace(large.child, args=args)))
    assert three.place(traveller("small", disk=1)).is_up
    assert three.benches["a"].is_alive("hosts")
    where = three.where("large")
    assert (where.host, where.is_up) == ("", False)
    assert re.search(r"a did not start it: .*StartPlaced to 'host' has \d+ bytes", where.reason)


def test_an_answer_about_hosts_that_carry_very_much_fits_into_mail_and_says_how_much(three: Cluster) -> None:
    core = three.benches["a"].actor("hosts")._core
    names = sorted(f"shard-{number:05d}{'x' * 50}" for number in range(2000))
    core.carried.update({name: Carried(host="b", number=1, is_up=True) for name in names})
    now = {host.host: host for host in three.hosts().hosts}
    assert now["b"].carries == tuple(names[:CARRIED_PER_HOST])
    assert (now["b"].carries_total, now["c"].carries_total) == (2000, 0)


def test_all_hosts_are_found_page_by_page_however_many_capabilities_they_declare(three: Cluster) -> None:
    core = three.benches["a"].actor("hosts")._core
    many = {f"capability-{number:02d}{'x' * 50}": number for number in range(64)}
    for number in range(40):
        core.hosts[f"host-{number:02d}"] = HostRecord(epoch=1, capabilities=many, reason="r" * 400)
    found: list[str] = []
    while True:
        part: HostsNow = three.answer("a", "hosts", WhichHosts(offset=len(found)))
        found += [host.host for host in part.hosts]
        if len(found) == part.total:
            break
        assert part.hosts, "a page has at least one host"
    assert found == sorted(core.hosts)


def test_an_order_of_an_epoch_that_is_over_is_refused(three: Cluster) -> None:
    epoch = next(h.epoch for h in three.hosts().hosts if h.host == "b")
    child = to_plain(traveller().child)
    late: Carries = three.order("b", StartPlaced(epoch=epoch - 1, number=99, child=child))
    assert (late.ok, late.reason) == (False, f"epoch {epoch - 1} is over; the epoch is {epoch} now")
    assert not three.order("b", StopPlaced(epoch=epoch - 1, number=99, name="job")).ok
    assert three.carried_by("b") == set()


def test_a_placement_number_is_taken_once_and_only_if_it_is_the_highest(three: Cluster) -> None:
    epoch = next(h.epoch for h in three.hosts().hosts if h.host == "b")
    order = StartPlaced(epoch=epoch, number=7, child=to_plain(traveller().child))
    assert three.order("b", order).ok
    again: Carries = three.order("b", order)
    assert (again.ok, again.last_number) == (False, 7)
    assert again.reason == "placement 7 of 'job' is late: this host has seen placement 7"
    assert three.benches["b"].row("job").incarnation == 7 * INCARNATIONS_PER_PLACEMENT + 1


def test_an_order_that_is_not_understood_is_an_answer_and_no_crash(three: Cluster) -> None:
    epoch = next(h.epoch for h in three.hosts().hosts if h.host == "b")
    answer = three.order("b", StartPlaced(epoch=epoch, number=1, child={"id": 7}))
    assert not answer.ok
    assert three.place(traveller(gpu=1)).host == "b", "unhurt"


def fill_board(board: Board) -> None:
    """Leave no row for another name."""
    for number in range(board.slots - len(board.rows())):
        board.claim(f"filler-{number}", "root")


def test_a_placement_for_which_the_board_has_no_row_is_refused_and_stops_nothing(three: Cluster) -> None:
    assert three.place(traveller("first", gpu=1)).host == "b"
    fill_board(three.benches["b"].board)
    epoch = next(h.epoch for h in three.hosts().hosts if h.host == "b")
    order = StartPlaced(epoch=epoch, number=99, child=to_plain(traveller().child))
    refused: Carries = three.order("b", order)
    assert not refused.ok
    assert "the board holds 1024 actors and is full, so 'job' cannot start" in refused.reason
    assert three.benches["b"].is_alive("host")
    assert three.carried_by("b") == {"first"}


def test_a_host_for_which_the_leaders_board_has_no_row_gets_work_all_the_same(tmp_path: Path) -> None:
    with Cluster(tmp_path, ("b",)) as cluster:
        cluster.up("a")
        board = cluster.benches["a"].board
        kept = [board.claim(f"kept-{number}", "root") for number in range(5)]
        fill_board(board)
        hosts = cluster.benches["a"].actor("hosts")
        hosts.link_up(LinkUp(host="b", epoch=1, capabilities={"gpu": 1}), Sender("bridge", 0))
        assert [host.host for host in cluster.hosts().hosts] == ["a", "b"]
        assert board.find("machine-b") is None
        board.set_state(kept[0], ActorState.FREE, ended_incarnation=1)
        cluster.run(2.0)
        assert cluster.benches["a"].row("machine-b").state is ActorState.RUNNING


def test_a_placement_that_is_called_off_while_it_waits_for_its_predecessors_end_is_not_started(
    three: Cluster,
) -> None:
    epoch = next(h.epoch for h in three.hosts().hosts if h.host == "b")
    child = to_plain(PlacedSpec(child=ChildSpec(id="job", actor=f"{TRAVELLERS}:Lingerer")).child)
    assert three.order("b", StartPlaced(epoch=epoch, number=1, child=child)).ok
    waiting = three.send_order("b", StartPlaced(epoch=epoch, number=2, child=child))
    three.run(0.3)
    stopping = three.send_order("b", StopPlaced(epoch=epoch, number=2, name="job"))
    three.run(3.0)
    assert (waiting.result().ok, stopping.result().ok) == (False, True)
    assert waiting.result().reason == "placement 2 of 'job' was called off meanwhile"
    assert three.carried_by("b") == set()


def test_the_name_of_an_actor_that_was_not_placed_is_not_taken_from_it(three: Cluster) -> None:
    epoch = next(h.epoch for h in three.hosts().hosts if h.host == "b")
    three.start("b", HostSupervisor, "other", host="b", capabilities={}, follows=True)
    child = ChildSpec(id="other", actor="tests.unit.supervision.travellers:Traveller")
    refused: Carries = three.order("b", StartPlaced(epoch=epoch, number=1, child=to_plain(child)))
    assert (refused.ok, refused.reason) == (False, "'other' is an actor of this machine that was not placed")


@pytest.mark.parametrize("host", ["a", "b"])
def test_when_a_bridge_is_started_anew_everything_behind_it_is_placed_anew(three: Cluster, host: str) -> None:
    first = three.place(traveller(gpu=1))
    three.benches[host].kill("bridge")
    own: dict[str, Any] = {"capabilities": CAPABILITIES[host], "lease_s": LEASE_S}
    name = "hosts" if host == "a" else "host"
    three.start_bridge(host, **own, tells=[name], exports=[name])
    three.run(2.0)
    second = three.where()
    assert second.is_up
    assert second.number > first.number
    assert sum(("job" in three.carried_by(machine)) for machine in "abc") == 1, "never two of one"
    assert three.answer("a", "job", Where()).incarnation > second.number * INCARNATIONS_PER_PLACEMENT


def test_what_the_leader_carries_itself_is_known_to_others_after_its_bridge_is_started_anew(
    three: Cluster,
) -> None:
    three.place(traveller(disk=1))
    three.benches["a"].kill("bridge")
    own: dict[str, Any] = {"capabilities": CAPABILITIES["a"], "lease_s": LEASE_S}
    three.start_bridge("a", **own, tells=["hosts", "host"], exports=["hosts"])
    three.run(3.0)
    assert three.where().host == "a"
    assert three.answer("b", "job", Where()).incarnation == three.benches["a"].row("job").incarnation


def test_what_is_placed_while_the_leaders_bridge_is_down_is_placed_when_it_is_back(three: Cluster) -> None:
    three.benches["a"].kill("bridge")
    refused = three.place(traveller(disk=1)).reason
    assert "a did not start it: the bridge of this host takes no messages now" in refused
    own: dict[str, Any] = {"capabilities": CAPABILITIES["a"], "lease_s": LEASE_S}
    three.start_bridge("a", **own, tells=["hosts", "host"], exports=["hosts"])
    three.run(RETRY_S + 1.5)
    assert three.where().is_up
    assert three.answer("b", "job", Where()).incarnation == three.benches["a"].row("job").incarnation


def test_a_host_supervisor_that_is_started_anew_stops_what_it_finds(three: Cluster) -> None:
    three.place(traveller(gpu=1))
    three.benches["b"].kill("host")
    three.start("b", HostSupervisor, "host", host="b", capabilities={}, follows=True)
    three.run(0.5)
    assert three.carried_by("b") == set()


class ManyPlaced(Actor):
    """Stands for the supervisor of very many placed actors."""

    def on_start(self) -> None:
        self.names = [f"shard-{number}" for number in range(2 * CHILDREN_PER_ANSWER + 1)]

    @receives(WhichChildren)
    def which(self, call: WhichChildren, _: Sender) -> Children:
        page = self.names[call.offset : call.offset + CHILDREN_PER_ANSWER]
        return Children(children=tuple(map(running, page)), total=len(self.names))

    @receives(TerminateChild)
    def terminate(self, call: TerminateChild, _: Sender) -> Managed:
        self.names.remove(call.id)
        return Managed(ok=True)


class OneEnds(ManyPlaced):
    """The same, and the newest child ends by itself after the first answer."""

    @receives(WhichChildren)
    def which(self, call: WhichChildren, sender: Sender) -> Children:
        answer = super().which(call, sender)
        if len(self.names) > 2 * CHILDREN_PER_ANSWER:
            del self.names[0]
        return answer

    @receives(TerminateChild)
    def terminate(self, call: TerminateChild, sender: Sender) -> Managed:
        if call.id not in self.names:
            return Managed(ok=False, reason="not_found")
        return super().terminate(call, sender)


def running(name: str) -> ChildInfo:
    return ChildInfo(
        id=name,
        state="running",
        type="worker",
        restart="permanent",
        pid=1,
        incarnation=1,
        restarts=0,
        last_reason="",
    )


@pytest.mark.parametrize("kind", [ManyPlaced, OneEnds])
def test_a_host_supervisor_stops_more_actors_than_one_answer_names(
    tmp_path: Path, kind: type[ManyPlaced]
) -> None:
    with InMemorySystem(tmp_path) as bench:
        placed = bench.start(kind, "placed")
        bench.start(HostSupervisor, "host", {"follows": True, "host": "b", "capabilities": {}})
        bench.advance(5.0)
        assert placed.names == []


def test_a_spec_that_makes_no_sense_is_an_answer_and_no_crash(three: Cluster) -> None:
    call = place_actor(traveller(gpu=1))
    plain = dict(call.spec) | {"needs": {"gpu": -1}}
    answer: Whereabouts = three.answer("a", "hosts", type(call)(spec=plain))
    assert "needs.gpu must be at least 0, got -1" in answer.reason
    assert three.hosts().hosts


# ---- who may say what ----


def test_a_listed_machine_cannot_say_that_another_one_is_lost_or_there(three: Cluster) -> None:
    three.place(traveller(gpu=1))
    before = three.hosts()
    epoch = next(h.epoch for h in before.hosts if h.host == "b")
    for news in (
        LinkDown(host="b", epoch=epoch, reason="so they say"),
        LinkUp(host="b", epoch=epoch + 9, capabilities={}),
    ):
        with pytest.raises(Refused, match="is not accepted from another host"):
            three.answer("c", "hosts@a", news)
        told: Managed = three.answer("a", "hosts", news)
        assert (told.ok, "not from 'asker'" in told.reason) == (False, True), "nor can anybody at home"
        assert not three.answer("b", "host", news).ok
    assert three.hosts().hosts == before.hosts
    assert three.hosts().refused == 2
    assert three.carried_by("b") == {"job"}


def test_a_listed_machine_cannot_have_anything_placed_started_or_stopped(three: Cluster) -> None:
    place = three.place(traveller(gpu=1))
    epoch = next(h.epoch for h in three.hosts().hosts if h.host == "b")
    for call in (place_actor(traveller("mine")), Displace(name="job")):
        answer: Whereabouts = three.answer("c", "hosts@a", call)
        assert answer.reason == (
            "this message is accepted from actors of the same machine only, not from 'asker@c'"
        )
    assert three.hosts().refused == 2
    start = StartPlaced(epoch=epoch, number=place.number + 1, child=to_plain(traveller("mine").child))
    stop = StopPlaced(epoch=epoch, number=place.number, name="job")
    for order in (start, stop):
        for asks, to in (("c", "host@b"), ("a", "host@b"), ("b", "host")):
            refused: Carries = three.answer(asks, to, order)
            assert not refused.ok
            assert "its own bridge and the leader's hosts only" in refused.reason
    assert three.carried_by("b") == {"job"}


# ---- what ends ----


def test_an_actor_that_is_displaced_while_the_link_is_full_is_stopped_later_and_never_two_run(
    three: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    three.place(traveller(gpu=1))
    bridge = three.bridge("a")
    say = bridge.say
    monkeypatch.setattr(
        bridge, "say", lambda channel, body: not isinstance(body, Carry) and say(channel, body)
    )
    three.answer("a", "hosts", Displace(name="job"))
    three.answer("a", "hosts", place_actor(traveller(gpu=1)))
    three.run(2.0)
    assert three.where().reason == "it is being stopped on 'b' first"
    assert (three.carried_by("b"), three.carried_by("c")) == ({"job"}, set())
    monkeypatch.undo()
    three.run(3.0)
    assert three.where().is_up
    assert sum("job" in three.carried_by(host) for host in "abc") == 1


@pytest.mark.parametrize("restart", [Restart.TRANSIENT, Restart.TEMPORARY])
def test_a_placed_actor_that_has_ended_for_good_is_not_said_to_be_up(
    three: Cluster, restart: Restart
) -> None:
    spec = traveller(gpu=1)
    spec = replace(spec, child=replace(spec.child, restart=restart))
    assert three.place(spec).is_up
    three.benches["b"].tell("job", Stop())
    three.run(1.0)
    place = three.where()
    assert (place.host, place.is_up) == ("b", False)
    assert "it does not run" in place.reason


@pytest.mark.parametrize("to", ["hosts@a", "bridge@a"])
def test_whoever_links_to_those_who_join_the_machines_and_is_lost_does_not_end_them(
    three: Cluster, to: str
) -> None:
    three.benches["c"].actor("host").link(to)
    three.run(0.5)
    three.cables["c"].cut()
    three.run(LEASE_S + 1.0)
    assert {h.host: h.state for h in three.hosts().hosts} == {"a": "running", "b": "running", "c": "stopped"}


# ---- placed actors that take long to stop ----

STOPS_IN_S, SHUTDOWN_S = 40.0, 61.0
HESITANT = ChildSpec(
    id="job", actor=f"{TRAVELLERS}:Hesitant", args={"stops_in_s": STOPS_IN_S}, shutdown_s=SHUTDOWN_S
)


def children_of(machine: ChildSpec) -> dict[str, ChildSpec]:
    return {plain["id"]: from_plain(plain, ChildSpec) for plain in machine.args["children"]}


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[InMemorySystem]:
    """A leader without other hosts, which runs an actor that takes long to stop."""
    machine = leader_spec(host="a", wire=tmp_path / "wire", placed=(PlacedSpec(child=HESITANT),))
    parts = children_of(machine)
    parts["bridge"] = replace(parts["bridge"], actor=f"{TRAVELLERS}:IdleBridge")
    args = dict(machine.args) | {"children": [to_plain(part) for part in parts.values()]}
    with InMemorySystem(tmp_path, live_children=True) as bench:
        bench.start(Supervisor, machine.id, args)
        bench.advance(2.0)
        assert bench.is_alive("job")
        yield bench


def test_a_placed_actor_gets_its_own_time_to_stop_when_its_host_is_restarted(
    alone: InMemorySystem, tmp_path: Path
) -> None:
    alone.kill("hosts")
    alone.advance(STOPS_IN_S + 1.0)
    assert (tmp_path / "job.ended").exists()
    assert [r.reason for r in reports.read(tmp_path, "machine-a")] == ["SIGKILL"], "of hosts alone"
    alone.advance(2.0)
    assert alone.is_alive("job")


def test_a_host_supervisor_may_start_for_as_long_as_placed_actors_take_to_stop(
    alone: InMemorySystem, tmp_path: Path
) -> None:
    alone.kill("host")
    alone.advance(STOPS_IN_S + 2.0)
    assert (tmp_path / "job.ended").exists()
    row = alone.row("host")
    assert (row.state, row.ready, row.incarnation) == (ActorState.RUNNING, True, 2)


def test_a_follower_gives_placed_actors_the_time_that_the_leader_names(tmp_path: Path) -> None:
    machine = follower_spec(host="b", leader="a", wire=tmp_path, longest_shutdown_s=SHUTDOWN_S)
    parts = children_of(machine)
    assert parts["placed"].shutdown_s > SHUTDOWN_S
    assert parts["host"].start_deadline_s > SHUTDOWN_S
    assert machine.shutdown_s > sum(part.shutdown_s for part in parts.values())


# ---- a shard: a placed supervisor with its children ----


def shard(children: int) -> PlacedSpec:
    specs = tuple(ChildSpec(id=f"player-{n}", actor=f"{TRAVELLERS}:Traveller") for n in range(children))
    child = supervisor_spec("shard", SupervisorFlags(max_restarts=9, max_seconds=5.0), specs)
    return PlacedSpec(child=child, needs={"gpu": 1})


def players(three: Cluster, host: str) -> dict[str, int]:
    """The players that run, by the board of a host: name and incarnation."""
    rows = three.benches[host].board.rows()
    return {row.name: row.incarnation for row in rows if row.parent == "shard" and row.state in LIVING}


def test_a_shard_moves_whole_and_its_children_bear_the_number_of_its_placement(three: Cluster) -> None:
    first = three.place(shard(5))
    three.run(1.0)
    names = {f"player-{n}" for n in range(5)}
    for host in "abc":
        seen = players(three, host)
        assert set(seen) == names, host
        assert {number // INCARNATIONS_PER_PLACEMENT for number in seen.values()} == {first.number}, host
    assert three.benches["a"].row("shard").parent == machine_row(first.host)
    three.cables[first.host].cut()
    three.run(LEASE_S + 2.0)
    second = three.where("shard")
    assert (second.is_up, second.host != first.host) == (True, True)
    for host in {"a", "b", "c"} - {first.host}:
        seen = players(three, host)
        assert set(seen) == names, host
        assert {number // INCARNATIONS_PER_PLACEMENT for number in seen.values()} == {second.number}, host
    assert three.answer("a", "player-3", Where()).incarnation == players(three, "a")["player-3"]


def test_a_shard_that_is_displaced_vanishes_whole(three: Cluster) -> None:
    three.place(shard(3))
    three.run(1.0)
    three.answer("a", "hosts", Displace(name="shard"))
    three.run(2.0)
    for host in "abc":
        assert players(three, host) == {}, host
        assert three.benches[host].row("shard").state is ActorState.FREE, host


def test_a_child_that_is_restarted_over_there_is_seen_here_with_its_restarts(three: Cluster) -> None:
    host = three.place(shard(2)).host
    three.run(1.0)
    before = players(three, "a")["player-1"]
    three.benches[host].kill("player-1")
    three.run(1.0)
    row = three.benches["a"].row("player-1")
    assert (row.state, row.incarnation, row.restarts) == (ActorState.RUNNING, before + 1, 1)
    assert "SIGKILL" in row.last_reason


def test_who_is_ready_before_the_others_of_its_shard_gets_every_answer_under_one_name(three: Cluster) -> None:
    three.place(traveller("home", "Listener", disk=1))
    three.place(traveller("engine", "Listener", gpu=1))
    quick = ChildSpec(id="quick", actor=f"{TRAVELLERS}:Seeker", args={"asks": ["home", "engine"]})
    slow = ChildSpec(id="slow", actor=f"{TRAVELLERS}:Slow")
    pool = supervisor_spec("pool", SupervisorFlags(ordered=False), (quick, slow))
    host = three.place(PlacedSpec(child=pool, needs={"gpu": 1}, is_announced_to_all=False)).host
    assert host != three.where("engine").host
    assert not three.where("pool").is_up, "its slow child is not ready yet"
    three.run(5.0)
    assert three.where("pool").is_up
    seeker = three.benches[host].actor("quick")
    assert (seeker.failures, seeker.answered > 50) == ([], True)
    for name in ("home", "engine"):
        assert three.benches[three.where(name).host].actor(name).askers == {"quick"}


# ---- a host that is lost again and again ----


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Cluster]:
    policy = {
        "backoff": to_plain(Backoff(initial_s=4.0, max_s=60.0, jitter=0.0)),
        "breaker": to_plain(Breaker(max_failures=1, within_s=300.0, open_s=100.0)),
    }
    with Cluster(tmp_path, ("b",)) as cluster:
        cluster.policy = policy  # type: ignore[misc]  # of this cluster alone
        for host in ("a", "b"):
            cluster.up(host)
        yield cluster


def lose_b(cluster: Cluster) -> None:
    cluster.cables["b"].cut()
    cluster.run(LEASE_S + 0.5)
    cluster.cables["b"].heal()
    cluster.run(2.0)


def test_a_host_that_flaps_waits_and_is_quarantined_and_says_so_to_whoever_asks(strict: Cluster) -> None:
    assert strict.place(traveller(gpu=1)).host == "b"
    bench = strict.benches["a"]
    assert (bench.row("machine-b").state, bench.row("machine-b").ready) == (ActorState.RUNNING, True)
    lose_b(strict)
    assert bench.row("machine-b").state is ActorState.BACKOFF, "it is there again, and waits"
    assert (
        "gets no work: it was lost once (nothing was heard of it for 3 s) and waits" in strict.where().reason
    )
    strict.run(4.0)
    assert (strict.where().host, bench.row("machine-b").state) == ("b", ActorState.RUNNING)
    lose_b(strict)
    row = bench.row("machine-b")
    assert (row.state, row.ready, row.restarts, row.parent) == (ActorState.QUARANTINED, False, 2, "hosts")
    assert row.last_reason == "the host is lost: nothing was heard of it for 3 s"
    assert row.retry_unix_s - bench.clock.unix_s() == pytest.approx(100.0, abs=5.0)
    now = {host.host: host for host in strict.hosts().hosts}["b"]
    assert (now.state, now.losses, now.reason) == ("quarantined", 2, "nothing was heard of it for 3 s")
    assert "in quarantine" in strict.hosts().unplaced["job"]
    assert any(line.lstrip("│├└─ ").startswith("machine-b  quarantined") for line in tree_lines(bench.board))
    told = reports.read(bench.board.path.parent, "hosts")
    assert [(r.offender.id, r.offender.incarnation, r.context) for r in told] == [
        ("machine-b", 1, "child_terminated"),
        ("machine-b", 2, "child_quarantined"),
    ]
    assert row.incarnation == 3, "it is connected for the third time"
    strict.run(100.0)
    assert (strict.where().host, bench.row("machine-b").state) == ("b", ActorState.RUNNING), "on probation"


def test_the_rows_of_machines_that_never_return_are_given_up_and_come_back_with_them(tmp_path: Path) -> None:
    with Cluster(tmp_path, ()) as cluster:
        cluster.up("a")
        hosts, board = cluster.benches["a"].actor("hosts"), cluster.benches["a"].board
        bridge = Sender("bridge", 0)
        for number in range(200):
            hosts.link_up(LinkUp(host=f"spot-{number}", epoch=1, capabilities={}), bridge)
            hosts.link_down(LinkDown(host=f"spot-{number}", epoch=1, reason="taken away"), bridge)
            cluster.run(0.1)

        def with_rows() -> list[str]:
            rows = [row for row in board.rows() if row.name.startswith("machine-spot-")]
            return [row.name for row in rows if row.state is not ActorState.FREE]

        assert len(with_rows()) == board.slots // 8
        assert with_rows()[-1] == "machine-spot-199"
        assert "machine-spot-7" not in with_rows()
        hosts.link_up(LinkUp(host="spot-7", epoch=2, capabilities={}), bridge)
        row = cluster.benches["a"].row("machine-spot-7")
        assert (row.restarts, row.incarnation, row.parent) == (1, 2, "hosts")
        assert row.state is not ActorState.FREE


def test_a_machine_that_did_not_return_for_long_is_shown_no_more(
    three: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("actors.directory", "supervision.host_rows"):
        monkeypatch.setattr(f"{module}.LOST_HOSTS_SHOWN_S", 20.0)
    three.place(traveller(gpu=1))
    three.cables["b"].cut()
    three.run(LEASE_S + 2.0)
    of_b = ("machine-b", "host@b", "bridge@b")
    states = {row.name: row.state for row in three.benches["a"].board.rows()}
    assert [states[name] for name in of_b] == [ActorState.STOPPED] * 3
    three.run(20.0)
    states = {row.name: row.state for row in three.benches["a"].board.rows()}
    assert [states[name] for name in of_b] == [ActorState.FREE] * 3
    assert (three.where().host, states["job"]) == ("c", ActorState.RUNNING)
    three.cables["b"].heal()
    three.run(3.0)
    assert three.benches["a"].row("machine-b").state is not ActorState.FREE


def test_the_names_of_a_machine_that_did_not_return_to_a_new_bridge_are_shown_no_more(
    three: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.directory.LOST_HOSTS_SHOWN_S", 20.0)
    three.cables["b"].cut()
    three.run(LEASE_S + 2.0)
    three.benches["a"].kill("bridge")
    own = {"capabilities": CAPABILITIES["a"], "lease_s": LEASE_S}
    three.start_bridge("a", **own, tells=["hosts"], exports=["hosts"])
    three.run(21.0)
    states = {row.name: row.state for row in three.benches["a"].board.rows()}
    assert [states[f"{name}@b"] for name in ("host", "bridge")] == [ActorState.FREE] * 2
    assert [states[f"{name}@c"] for name in ("host", "bridge")] == [ActorState.RUNNING] * 2


def test_a_machine_that_did_not_return_to_a_new_leader_is_shown_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervision.host_rows.LOST_HOSTS_SHOWN_S", 20.0)
    with Cluster(tmp_path, ()) as cluster:
        cluster.up("a")
        cluster.benches["a"].actor("hosts").link_up(
            LinkUp(host="b", epoch=1, capabilities={}), Sender("bridge", 0)
        )
        cluster.benches["a"].kill("hosts")
        cluster.start("a", Hosts, "hosts")
        cluster.run(1.0)
        assert cluster.benches["a"].row("machine-b").state is ActorState.STOPPED
        cluster.run(20.0)
        assert cluster.benches["a"].row("machine-b").state is ActorState.FREE


def test_a_leader_whose_bridge_is_started_anew_does_not_hold_it_against_the_hosts(strict: Cluster) -> None:
    for _ in range(3):
        strict.benches["a"].kill("bridge")
        own = {"capabilities": CAPABILITIES["a"], "lease_s": LEASE_S}
        strict.start_bridge("a", **own, tells=["hosts"], exports=["hosts"])
        strict.run(2.0)
    now = {host.host: host for host in strict.hosts().hosts}["b"]
    assert (now.state, now.losses) == ("running", 0)


class Awaiting(Cluster):
    policy: ClassVar[dict[str, Any]] = {
        "placed": [to_plain(traveller(name)) for name in ("one", "two", "three")],
        "awaits": ["a", "b", "c"],
    }


def test_the_first_placement_waits_until_it_sees_all_hosts_that_are_to_come(tmp_path: Path) -> None:
    with Awaiting(tmp_path, ("b", "c")) as cluster:
        cluster.up("a")
        cluster.up("b")
        assert cluster.carried_by("a") | cluster.carried_by("b") == set()
        cluster.up("c")
        cluster.run(1.0)
        assert [len(cluster.carried_by(host)) for host in "abc"] == [1, 1, 1]


def test_a_host_that_does_not_come_delays_the_first_placement_and_no_more(tmp_path: Path) -> None:
    with Awaiting(tmp_path, ("b", "c")) as cluster:
        cluster.up("a")
        cluster.run(AWAIT_HOSTS_S + 2.0)
        assert cluster.carried_by("a") == {"one", "two", "three"}


# ---- placed actors that fail too often ----


class Strict(Cluster):
    policy: ClassVar[dict[str, Any]] = {"failures": to_plain(Budget(max_restarts=1, max_seconds=60.0))}


def test_restarts_of_other_hosts_count(tmp_path: Path) -> None:
    with Strict(tmp_path, ("b",)) as cluster:
        for host in "ab":
            cluster.up(host)
        cluster.place(traveller(gpu=1))
        cluster.benches["b"].kill("job")
        cluster.run(3.0)
        run_dir = cluster.benches["a"].actor("hosts").identity.run_dir
        assert not placement_failure.read(run_dir)
        cluster.benches["b"].kill("job")
        cluster.run(3.0)
        assert "the last was 'job' on 'b': SIGKILL" in placement_failure.read(run_dir)


def test_a_start_that_is_refused_without_a_process_is_no_failure(three: Cluster) -> None:
    epoch = three.benches["b"].actor("host")._epoch
    three.benches["b"].actor("placed")._core.flags = replace(FLAGS, max_children=1)
    one, two = (
        three.order("b", StartPlaced(epoch=epoch, number=5, child=to_plain(traveller(name).child)))
        for name in ("one", "two")
    )
    assert one.ok
    assert (two.ok, two.reason, two.has_failed) == (False, "max_children", False)


def test_a_start_that_fails_in_its_process_is_a_failure(three: Cluster) -> None:
    epoch = three.benches["b"].actor("host")._epoch
    child = to_plain(traveller(actor="Stillborn").child)
    assert three.order("b", StartPlaced(epoch=epoch, number=5, child=child)).has_failed


def test_the_loss_of_a_host_is_no_failure_of_what_it_carried(tmp_path: Path) -> None:
    with Strict(tmp_path, ("b", "c")) as cluster:
        for host in "abc":
            cluster.up(host)
        cluster.place(traveller(gpu=1))
        for first, second in ("bc", "cb"):
            assert cluster.where().host == first
            cluster.cables[first].cut()
            cluster.run(LEASE_S + 3.0)
            cluster.cables[first].heal()
            assert cluster.where().host == second
            cluster.run(LEASE_S)
