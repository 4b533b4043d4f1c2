"""The tree of a leader that carries actors itself, on one host of memory."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.board import LIVING, ActorState
from actors.bridge import Bridge
from actors.testing import InMemorySystem
from actors.wire import AgentWire
from supervision import placement_failure, reports
from supervision.child_spec import Budget, ChildSpec, Strategy, SupervisorFlags
from supervision.host_messages import Whereabouts, WhereIs, place_actor
from supervision.host_specs import leader_spec
from supervision.placement import RETRY_S, PlacedSpec
from supervision.supervisor import Supervisor, supervisor_args

ROOT = SupervisorFlags(strategy=Strategy.REST_FOR_ONE, max_restarts=6, max_seconds=7200.0)


def traveller(name: str, actor: str = "Traveller", **args: Any) -> PlacedSpec:
    path = f"tests.unit.supervision.travellers:{actor}"
    return PlacedSpec(child=ChildSpec(id=name, actor=path, args=args))


class Agent:
    """An agent that has no other host to send to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.start()

    def start(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(str(self._path))
        self._socket.listen()

    def end(self) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(tmp_path / "wire")
    yield agent
    agent.end()


JOB = traveller("job")


def start_tree(
    bench: InMemorySystem, wire: Path, *, job: PlacedSpec = JOB, failures: Budget | None = None
) -> None:
    machine = leader_spec(host="a", wire=wire, placed=(job,), failures=failures)
    bench.start(Supervisor, "root", supervisor_args(ROOT, (machine,)))
    bench.advance(2.0)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySystem]:
    wires: list[AgentWire] = []

    def open_wire(bridge: Bridge) -> AgentWire:
        wires.append(AgentWire(Path(bridge.args["wire"])))
        return wires[-1]

    monkeypatch.setattr(Bridge, "open_wire", open_wire)
    with InMemorySystem(tmp_path, live_children=True) as bench:
        yield bench
    for wire in wires:  # the end of its process would close it
        wire.close()


def living(bench: InMemorySystem) -> dict[str, int]:
    return {row.name: row.incarnation for row in bench.board.rows() if row.state in LIVING}


def where(bench: InMemorySystem, name: str) -> Whereabouts:
    asked = bench.ask("hosts", WhereIs(name=name))
    bench.settle()
    place: Whereabouts = asked.result()
    return place


# ---- the agent is away ----


@pytest.mark.parametrize("bridge_waits_s", [180.0, 20.0])
def test_an_agent_that_is_away_for_a_minute_costs_its_host_nothing_but_the_bridge(
    bench: InMemorySystem,
    agent: Agent,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bridge_waits_s: float,
) -> None:
    monkeypatch.setattr("actors.bridge.AGENT_WAIT_S", bridge_waits_s)
    start_tree(bench, tmp_path / "wire")
    before = living(bench)
    agent.end()
    bench.advance(63.0)
    assert bench.row("bridge").state is ActorState.STARTING
    ends = [report.reason for report in reports.read(tmp_path, "machine-a")]
    assert len(ends) == (1 if bridge_waits_s > 63.0 else 4)
    assert all("WireClosed" in reason for reason in ends)
    agent.start()
    bench.advance(2.0)
    after = living(bench)
    assert after.pop("bridge") > before.pop("bridge")
    assert after == before
    assert where(bench, "job").is_up


def test_an_actor_that_is_placed_while_the_bridge_waits_for_its_agent_stays_and_is_announced_later(
    bench: InMemorySystem, agent: Agent, tmp_path: Path
) -> None:
    start_tree(bench, tmp_path / "wire")
    agent.end()
    bench.advance(10.0)
    bench.tell("hosts", place_actor(traveller("slow", "Slow")))
    bench.advance(10.0)
    assert where(bench, "slow").is_up
    before = living(bench)
    agent.start()
    bench.advance(2.0)
    assert living(bench) == before
    announced = bench.actor("bridge").announced
    assert all(announced.is_announced(name) for name in ("job", "slow"))


@pytest.mark.usefixtures("agent")
def test_an_actor_that_is_placed_at_the_moment_in_which_the_bridge_ends_stays_and_is_announced(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    start_tree(bench, tmp_path / "wire")
    before = living(bench)
    bench.kill("bridge")
    bench.tell("hosts", place_actor(traveller("late", "Slow")))
    for name in ("hosts", "host", "placed", "host"):  # before the supervisor restarts the bridge
        bench.turn(name)
    bench.advance(4.0)
    assert where(bench, "late").is_up
    after = living(bench)
    assert after.pop("bridge") > before.pop("bridge")
    del after["late"]
    assert after == before
    assert bench.actor("bridge").announced.is_announced("late")


def test_a_first_start_without_an_agent_fails_at_once_and_names_the_socket(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    start_tree(bench, tmp_path / "wire")
    assert not bench.is_alive("root")
    assert f"no agent of this host listens at {tmp_path / 'wire'}" in bench.row("root").last_reason


# ---- a placed actor fails again and again ----


@pytest.mark.usefixtures("agent")
def test_the_reason_of_an_actor_that_starts_on_no_host_is_published_and_outlives_hosts(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    three = Budget(max_restarts=3, max_seconds=1.0)
    start_tree(bench, tmp_path / "wire", job=traveller("job", "Stillborn"), failures=three)
    bench.advance(2.0 * RETRY_S)
    assert not placement_failure.read(tmp_path), "three failures are allowed"
    bench.advance(2.0 * RETRY_S)
    bench.kill("hosts")
    bench.advance(1.0)
    assert bench.is_alive("root")
    reason = placement_failure.read(tmp_path)
    assert "placed actors failed more than 3 times in 1 s; the last was 'job' on 'a': exit code 70" in reason
    assert "ZeroDivisionError: as ever" in reason
    placement_failure.forget(tmp_path)
    assert not placement_failure.read(tmp_path)


@pytest.mark.usefixtures("agent")
def test_the_reason_of_an_actor_that_ends_again_and_again_on_its_host_is_published(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    three = Budget(max_restarts=3, max_seconds=600.0)
    start_tree(bench, tmp_path / "wire", job=traveller("job", "ShortLived", lives_s=60.0), failures=three)
    bench.advance(200.0)
    assert not placement_failure.read(tmp_path), "three failures are allowed"
    bench.advance(60.0)
    assert bench.is_alive("root")
    assert "ZeroDivisionError: worn out" in placement_failure.read(tmp_path)


# ---- the tree of the leader fails ----


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("failures", [None, Budget(max_restarts=6, max_seconds=7200.0)])
def test_a_host_supervisor_that_fails_too_often_is_restarted_with_its_tree(
    bench: InMemorySystem, tmp_path: Path, failures: Budget | None
) -> None:
    start_tree(bench, tmp_path / "wire", failures=failures)
    for _ in range(200):
        if bench.row("machine-a").incarnation > 1:
            break
        if bench.is_alive("host"):
            bench.kill("host")
        bench.advance(0.5)
    bench.advance(5.0)
    assert bench.row("machine-a").incarnation == 2
    assert bench.is_alive("root")
    assert where(bench, "job").is_up


@pytest.mark.usefixtures("agent")
def test_a_crash_of_hosts_does_not_end_the_tree(bench: InMemorySystem, tmp_path: Path) -> None:
    start_tree(bench, tmp_path / "wire", failures=Budget(max_restarts=6, max_seconds=7200.0))
    bench.kill("hosts")
    bench.advance(5.0)
    assert bench.is_alive("root")
    assert bench.row("machine-a").incarnation == 1
    assert where(bench, "job").is_up
