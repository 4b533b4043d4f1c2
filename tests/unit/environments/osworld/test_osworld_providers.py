"""Where machines come from: addresses, docker's command line, and the pool with its quota and leaks."""

import asyncio
import contextlib
import errno
import json
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import psutil
import pytest
import structlog

from dart.config.machine_address import MachineAddress, parse_address
from dart.config.sections import OSWorldDockerSettings, OSWorldPoolSettings, OSWorldSettings
from dart.core.types import FaultKind
from dart.environments import deadlines
from dart.environments.faults import (
    CallFailed,
    MachineDied,
    MachineHung,
    NoMachineFree,
    ProviderAway,
    ProviderRefused,
)
from dart.environments.osworld import pool as pool_module
from dart.environments.osworld import providers
from dart.environments.osworld.environment import OSWorldEnvironment
from dart.environments.osworld.machine_ledger import read_ledger
from dart.environments.osworld.pool import PoolProvider
from dart.environments.osworld.providers import (
    LABEL,
    REMOVE_DEADLINE_S,
    AddressList,
    DockerProvider,
    run,
    run_label,
    run_until_done,
)
from tests.fake_pool import TOKEN, FakePool, remember
from tests.patience import slowness

# ---- addresses ----


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("vm", MachineAddress(host="vm")),
        ("vm:5001", MachineAddress(host="vm", server=5001)),
        ("vm:5001:9333", MachineAddress(host="vm", server=5001, chromium=9333)),
        ("vm:5001:9333:8081", MachineAddress(host="vm", server=5001, chromium=9333, vlc=8081)),
    ],
)
def test_an_address_is_read(text: str, address: MachineAddress) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", [":5000", "vm:x", "a:1:2:3:4"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_address(text)


async def test_each_environment_has_the_address_of_its_number() -> None:
    lease = await AddressList(["a:1", "b:2"], 1).acquire(deadline_s=1.0)
    assert (lease.name, lease.address) == ("the machine at b:2", MachineAddress(host="b", server=2))


async def test_a_machine_is_brought_back_by_a_command_with_its_address_filled_in(tmp_path: Path) -> None:
    told = tmp_path / "told"
    provider = AddressList(["vm:5001"], 0, ["sh", "-c", f"echo {{host}} {{port}} {{snapshot}} > {told}"])
    await provider.revert("init_state", deadline_s=10.0)
    assert told.read_text() == "vm 5001 init_state\n"


async def test_a_script_beyond_its_deadline_ends_with_its_children(tmp_path: Path) -> None:
    pid, slow = tmp_path / "pid", slowness()
    began_s = time.monotonic()
    with pytest.raises(MachineHung):
        await run(["sh", "-c", f"sleep {8 * slow} & echo $! > {pid}; wait"], "revert", deadline_s=0.5)
    assert time.monotonic() - began_s < 4.0 * slow
    await asyncio.to_thread(await_end, int(pid.read_text()))


async def test_a_process_that_left_the_group_of_a_script_holds_no_call_up(tmp_path: Path) -> None:
    began_s, slow = time.monotonic(), slowness()
    with pytest.raises(MachineHung):
        await run(["sh", "-c", f"setsid sleep {8 * slow} & wait"], "revert", deadline_s=0.5)
    assert time.monotonic() - began_s < 4.0 * slow


async def test_a_script_that_leaves_a_process_behind_has_ended() -> None:
    slow = slowness()
    script = ["sh", "-c", f"sleep {8 * slow} & echo done"]
    assert await run(script, "revert", deadline_s=4.0 * slow) == "done\n"


def await_end(pid: int) -> None:
    """Wait until a process has ended; it may stay a zombie until its new parent collects it."""
    give_up_s = time.monotonic() + 4.0
    with contextlib.suppress(psutil.NoSuchProcess):
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < give_up_s, f"process {pid} is still running"
            time.sleep(0.02)


@pytest.mark.parametrize(
    ("command", "fault", "says"),
    [
        (["sh", "-c", "echo no such snapshot >&2; exit 3"], CallFailed, "exit code 3: no such snapshot"),
        (["/no/such/program"], CallFailed, "No such file"),
        (["sleep", "60"], MachineHung, "sleep did not respond"),
    ],
)
async def test_a_revert_that_fails_or_hangs_is_a_fault(
    command: list[str], fault: type[Exception], says: str
) -> None:
    provider = AddressList(["vm"], 0, command)
    with pytest.raises(fault, match=says):
        await provider.revert("x", deadline_s=0.3)


# ---- docker ----

FAKE_DOCKER = """#!{python}
import json, pathlib, sys
state = pathlib.Path({state!r})
known = json.loads(state.read_text()) if state.exists() else {{"calls": [], "running": []}}
known["calls"].append(sys.argv[1:])
if sys.argv[1] == "ps":
    print("\\n".join(known["running"]))
elif sys.argv[1] == "run":
    known["running"].append("c%d" % len(known["calls"]))
    print(known["running"][-1])
elif sys.argv[1] == "port":
    print("5000/tcp -> 127.0.0.1:32768\\n9222/tcp -> 127.0.0.1:32769")
elif sys.argv[1] == "rm":
    known["running"] = [one for one in known["running"] if one not in sys.argv[2:]]
state.write_text(json.dumps(known))
"""


@pytest.fixture
def docker(tmp_path: Path) -> Callable[[], dict[str, Any]]:
    """A program that is called like docker and keeps what it was told."""
    program, state = tmp_path / "docker", tmp_path / "state.json"
    program.write_text(FAKE_DOCKER.format(python=sys.executable, state=str(state)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return lambda: dict(json.loads(state.read_text()))


def provider_of(tmp_path: Path, **settings: Any) -> DockerProvider:
    values = {"program": str(tmp_path / "docker"), "disk": Path("/vm/Ubuntu.qcow2")} | settings
    return DockerProvider(Path("/run"), "env-003", OSWorldDockerSettings(**values), has_kvm=True)


async def test_a_container_is_started_with_ports_docker_picks_and_its_label(
    tmp_path: Path, docker: Callable[[], dict[str, Any]]
) -> None:
    provider = provider_of(tmp_path, cpus=2, ram="6G", disk_size="40G")
    lease = await provider.acquire(deadline_s=20.0)
    assert lease.address == MachineAddress(host="127.0.0.1", server=32768, chromium=32769)
    command = next(call for call in docker()["calls"] if call[0] == "run")
    said = " ".join(command)
    for part in (
        "--detach --label dartrl.environment=/run:env-003 --label dartrl.run=/run --cap-add NET_ADMIN",
        "--volume /vm/Ubuntu.qcow2:/System.qcow2:ro",
        "--env CPU_CORES=2",
        "--env RAM_SIZE=6G",
        "--env DISK_SIZE=40G",
        "--device /dev/kvm",
        "--publish 127.0.0.1::5000",
        "--publish 127.0.0.1::9222",
    ):
        assert part in said
    assert command[-1] == "happysixd/osworld-docker"


def test_a_container_has_the_label_by_which_its_run_finds_it_also_through_a_symbolic_link(
    tmp_path: Path,
) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    arguments = DockerProvider(link, "env-000", OSWorldDockerSettings()).run_arguments()
    assert run_label(tmp_path) in arguments
    assert f"{LABEL}={tmp_path.resolve()}:env-000" in arguments


def test_without_kvm_the_container_is_told_so(tmp_path: Path) -> None:
    arguments = DockerProvider(Path("/run"), "x", OSWorldDockerSettings(), has_kvm=False).run_arguments()
    assert "KVM=N" in arguments
    assert "/dev/kvm" not in arguments


async def test_what_a_killed_environment_left_is_removed_before_the_next_container(
    tmp_path: Path, docker: Callable[[], dict[str, Any]]
) -> None:
    await provider_of(tmp_path).acquire(deadline_s=20.0)
    await provider_of(tmp_path).acquire(deadline_s=20.0)
    assert len(docker()["running"]) == 1


async def test_a_container_that_is_given_back_is_removed(
    tmp_path: Path, docker: Callable[[], dict[str, Any]]
) -> None:
    provider = provider_of(tmp_path)
    await provider.acquire(deadline_s=20.0)
    await provider.release()
    assert docker()["running"] == []


async def test_all_calls_of_docker_share_the_deadline_of_a_start_or_a_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    given: list[tuple[str, float]] = []
    says = {"ps": "left", "run": "new", "port": "5000/tcp -> 127.0.0.1:1\n9222/tcp -> 127.0.0.1:2"}

    async def takes_a_second(command: list[str], what: str, *, deadline_s: float) -> str:
        nonlocal now_s
        given.append((what, deadline_s))
        now_s += 1.0
        return says.get(what, "")

    monkeypatch.setattr(providers, "run", takes_a_second)
    monkeypatch.setattr(deadlines, "time", SimpleNamespace(monotonic=lambda: now_s))
    provider = provider_of(tmp_path)
    await provider.acquire(deadline_s=10.0)
    assert given == [("ps", 10.0), ("rm", 9.0), ("run", 8.0), ("port", 7.0)]
    given.clear()
    await provider.release()
    assert given == [("ps", REMOVE_DEADLINE_S), ("rm", REMOVE_DEADLINE_S - 1.0)]


async def test_without_docker_there_is_a_fault_and_no_machine(tmp_path: Path) -> None:
    provider = provider_of(tmp_path, program="/no/docker")
    with pytest.raises(CallFailed, match="/no/docker failed at ps"):
        await provider.acquire(deadline_s=5.0)


# ---- the pool ----


Serve = Callable[[httpx2.Request], Coroutine[None, None, httpx2.Response]]


def pool_provider(
    pool: FakePool, tmp_path: Path, name: str = "env-000", *, serve: Serve | None = None, **settings: Any
) -> PoolProvider:
    """A provider of this pool; ``serve`` answers its requests in place of the pool."""

    async def no_sleep(_: float) -> None:
        pool.running = {id_: age + 1 for id_, age in pool.running.items()}

    return PoolProvider(
        name,
        OSWorldPoolSettings(server="http://pool.test:50003", **settings),
        tmp_path / "machines",
        environ={"DARTRL_POOL_TOKEN": settings.pop("token", TOKEN)},
        transport=httpx2.MockTransport(serve or pool),
        sleep=no_sleep,
    )


async def test_a_machine_is_lent_and_given_back(tmp_path: Path) -> None:
    pool = FakePool()
    provider = pool_provider(pool, tmp_path)
    lease = await provider.acquire(deadline_s=30.0)
    assert lease.address == MachineAddress(host="pool.test", server=5001, chromium=9223, vlc=2)
    await provider.release()
    assert pool.running == {}


async def test_a_full_quota_is_waited_for_and_then_said(tmp_path: Path) -> None:
    pool = FakePool(limit=0)
    with pytest.raises(NoMachineFree, match=r"http://pool.test:50003 gave no machine.*Token quota exceeded"):
        await pool_provider(pool, tmp_path).acquire(deadline_s=1.0)


async def test_a_machine_of_the_incarnation_before_is_given_back_first(tmp_path: Path) -> None:
    pool = FakePool()
    await pool_provider(pool, tmp_path).acquire(deadline_s=30.0)
    await pool_provider(pool, tmp_path).acquire(deadline_s=30.0)
    assert len(pool.running) == 1


async def test_an_environment_in_a_copy_of_a_run_directory_stops_no_machine_of_the_original(
    tmp_path: Path,
) -> None:
    pool = FakePool(limit=2)
    await pool_provider(pool, tmp_path / "run").acquire(deadline_s=30.0)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    await pool_provider(pool, tmp_path / "copy").acquire(deadline_s=30.0)
    assert len(pool.running) == 2


async def test_an_environment_that_plays_nothing_gives_back_the_machine_of_the_incarnation_before(
    tmp_path: Path,
) -> None:
    pool = FakePool()
    await pool_provider(pool, tmp_path).acquire(deadline_s=30.0)
    provider = pool_provider(pool, tmp_path)
    await OSWorldEnvironment(OSWorldSettings(), provider, tmp_path / "cache", tmp_path / "scratch").close()
    assert pool.running == {}


async def test_a_machine_whose_stop_was_refused_is_stopped_later(tmp_path: Path) -> None:
    pool = FakePool(limit=3)
    pool.refused_stops = 3
    provider = pool_provider(pool, tmp_path)
    await provider.acquire(deadline_s=30.0)
    await provider.release()
    await provider.acquire(deadline_s=30.0)
    assert len(pool.running) == 2
    await provider.release()  # refuses one machine, and stops the other
    assert len(pool.running) == 1
    await pool_provider(pool, tmp_path).release()  # of the next incarnation
    assert pool.running == {}
    assert list((tmp_path / "machines").iterdir()) == []


async def test_a_machine_whose_stop_was_refused_is_stopped_while_the_quota_is_waited_for(
    tmp_path: Path,
) -> None:
    pool = FakePool(limit=1)
    pool.refused_stops = 2
    provider = pool_provider(pool, tmp_path)
    await provider.acquire(deadline_s=30.0)
    (first,) = pool.running
    await provider.release()
    await provider.acquire(deadline_s=30.0)
    assert first not in pool.running
    assert len(pool.running) == 1


async def test_a_machine_that_cannot_be_written_down_is_stopped_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be in no file, so it would run on and use up the quota."""

    def is_full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    pool = FakePool()
    with monkeypatch.context() as patch:

        async def fills_the_disk(request: httpx2.Request) -> httpx2.Response:
            patch.setattr(Path, "replace", is_full)
            return pool(request)

        with pytest.raises(OSError, match="No space left"):
            await pool_provider(pool, tmp_path, serve=fills_the_disk).acquire(deadline_s=30.0)
        with pytest.raises(OSError, match="No space left"):
            await pool_provider(pool, tmp_path).acquire(deadline_s=30.0)
    assert pool.running == {}
    assert pool.calls.count("POST /start_emulator") == 1
    await pool_provider(pool, tmp_path).acquire(deadline_s=30.0)
    assert len(pool.running) == 1


async def test_a_machine_whose_ports_are_not_said_is_stopped_before_the_next_one_starts(
    tmp_path: Path,
) -> None:
    pool = FakePool(limit=3)

    async def without_a_port(request: httpx2.Request) -> httpx2.Response:
        response = pool(request)
        if request.url.path != "/start_emulator":
            return response
        data = response.json()["data"] | {"chromium_port": None}
        return httpx2.Response(200, json={"code": 0, "data": data})

    provider = pool_provider(pool, tmp_path, serve=without_a_port)
    for _ in range(2):
        with pytest.raises(CallFailed, match="does not follow the protocol"):
            await provider.acquire(deadline_s=30.0)
    assert len(pool.running) == 1
    await provider.release()
    assert pool.running == {}


class StopsTogether:
    """A server that answers no stop of a machine before it has been asked for a number of them."""

    def __init__(self, pool: FakePool, number: int) -> None:
        self.asked: list[str] = []
        self._pool, self._number, self._are_asked = pool, number, asyncio.Event()

    async def serve(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/stop_emulator":
            self.asked.append(json.loads(request.content)["emulator_id"])
            if len(self.asked) == self._number:
                self._are_asked.set()
            await self._are_asked.wait()
        return self._pool(request)


async def test_the_machines_of_an_environment_are_stopped_together(tmp_path: Path) -> None:
    """So machines whose stops hang hold an episode up by one deadline, however many they are."""
    pool = FakePool()
    remember(tmp_path, emulator_ids=["a", "b", "c"])
    stops = StopsTogether(pool, 3)
    async with asyncio.timeout(5.0):
        await pool_provider(pool, tmp_path, serve=stops.serve).release()
    assert stops.asked == ["a", "b", "c"]
    assert list((tmp_path / "machines").iterdir()) == []


async def test_a_machine_nobody_wrote_down_is_given_back_with_a_token_of_our_own(tmp_path: Path) -> None:
    pool = FakePool(limit=2)
    pool.hangs = True
    with pytest.raises(MachineDied, match="ReadTimeout"):
        await pool_provider(pool, tmp_path, own_token=True).acquire(deadline_s=30.0)
    pool.hangs = False
    await pool_provider(pool, tmp_path, "env-001", own_token=True).acquire(deadline_s=30.0)
    assert len(pool.running) == 2  # the quota is full, one of them belongs to nobody
    leaked, held = pool.running
    await pool_provider(pool, tmp_path, "env-002", own_token=True).acquire(deadline_s=30.0)
    assert leaked not in pool.running
    assert held in pool.running


@pytest.mark.parametrize("process", [{}, {"pid": os.getpid(), "start_ticks": 1}])
async def test_a_machine_of_an_environment_that_is_not_started_again_is_given_back_with_a_token_of_our_own(
    tmp_path: Path, process: dict[str, int]
) -> None:
    """It is in a file, but the process that wrote the file has ended, and its pid may be used again."""
    pool = FakePool(limit=1)
    pool.running = {"left": 9}
    remember(tmp_path, emulator_ids=["left"], **process)
    await pool_provider(pool, tmp_path, "env-001", own_token=True).acquire(deadline_s=30.0)
    assert "left" not in pool.running


async def test_a_machine_of_a_start_without_an_answer_is_given_back_also_while_the_quota_is_not_full(
    tmp_path: Path,
) -> None:
    pool = FakePool(limit=9)
    pool.running = {"left": 9}
    remember(tmp_path, unanswered=[1.0])
    await pool_provider(pool, tmp_path, own_token=True).acquire(deadline_s=30.0)
    assert "left" not in pool.running
    assert len(pool.running) == 1


async def test_a_machine_of_another_environment_that_runs_is_not_given_back(tmp_path: Path) -> None:
    pool = FakePool(limit=1)
    await pool_provider(pool, tmp_path, own_token=True).acquire(deadline_s=30.0)
    (held,) = pool.running
    pool.running[held] = 9
    with pytest.raises(NoMachineFree):
        await pool_provider(pool, tmp_path, "env-001", own_token=True).acquire(deadline_s=1.0)
    assert held in pool.running


async def test_leaked_machines_are_stopped_together(tmp_path: Path) -> None:
    pool = FakePool(limit=1)
    pool.running = {"a": 5, "b": 5, "c": 5}
    stops = StopsTogether(pool, 3)
    async with asyncio.timeout(5.0):
        await pool_provider(pool, tmp_path, serve=stops.serve, own_token=True).acquire(deadline_s=30.0)
    assert stops.asked == ["a", "b", "c"]
    assert len(pool.running) == 1


@pytest.mark.parametrize(
    ("listed", "stopped"),
    [
        ({"data": []}, []),
        ("[" * 100_000, []),
        (
            [
                5,
                {"duration_minutes": 9},
                {"emulator_id": "young", "duration_minutes": 1},
                {"emulator_id": "ageless", "duration_minutes": "old"},
                {"emulator_id": "leaked", "duration_minutes": 2.5},
                {"emulator_id": "leaked too", "duration_minutes": "9"},
            ],
            ["leaked", "leaked too"],
        ),
    ],
)
async def test_a_list_of_machines_that_does_not_follow_the_protocol_ends_no_start(
    tmp_path: Path, listed: Any, stopped: list[str]
) -> None:
    assert await stopped_of(listed, tmp_path) == stopped


async def test_machines_of_other_tokens_are_not_stopped_where_a_server_lists_those_of_all(
    tmp_path: Path,
) -> None:
    listed = [
        {"emulator_id": "theirs", "duration_minutes": 9, "token": "other"},
        {"emulator_id": "leaked", "duration_minutes": 9, "token": "secret"},
    ]
    assert await stopped_of(listed, tmp_path) == ["leaked"]


async def stopped_of(listed: Any, tmp_path: Path) -> list[str]:
    """Return which machines an environment stops when the quota is full and the server lists these.

    listed   value of the response, or its text"""
    pool, asked = FakePool(limit=0), list[str]()

    async def serve(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/stop_emulator":
            asked.append(json.loads(request.content)["emulator_id"])
        if request.url.path != "/emulators":
            return pool(request)
        pool.limit = 1
        return httpx2.Response(200, content=listed if isinstance(listed, str) else json.dumps(listed))

    await pool_provider(pool, tmp_path, serve=serve, own_token=True).acquire(deadline_s=30.0)
    return asked


async def test_with_a_shared_token_nobodys_machine_is_touched(tmp_path: Path) -> None:
    pool = FakePool(limit=1)
    pool.running["of somebody else"] = 500
    with pytest.raises(NoMachineFree):
        await pool_provider(pool, tmp_path).acquire(deadline_s=1.0)
    assert "of somebody else" in pool.running


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_a_token_that_is_not_taken_is_for_a_person_to_mend(token: str, tmp_path: Path) -> None:
    provider = PoolProvider(
        "env-000",
        OSWorldPoolSettings(),
        tmp_path,
        environ={"DARTRL_POOL_TOKEN": token},
        transport=httpx2.MockTransport(FakePool()),
    )
    with pytest.raises(ProviderRefused):
        await provider.acquire(deadline_s=5.0)


# ---- starts that are not waited for to their end ----


class StartsLater:
    """A server that answers a start only when it may, and has then started the machine; with its provider."""

    def __init__(self, tmp_path: Path) -> None:
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.pool = FakePool()
        self.provider = pool_provider(self.pool, tmp_path, serve=self.serve)

    async def serve(self, request: httpx2.Request) -> httpx2.Response:
        response = self.pool(request)
        if request.url.path == "/start_emulator":
            self.is_asked.set()
            await self.may_answer.wait()
        return response


async def cancelled(starts: StartsLater) -> None:
    """Cancel a request for a machine whose start goes on, as a stop of the environment does."""
    acquiring = asyncio.create_task(starts.provider.acquire(deadline_s=30.0))
    await starts.is_asked.wait()
    acquiring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await acquiring


async def test_a_machine_whose_start_was_cancelled_is_stopped_when_the_server_has_started_it(
    tmp_path: Path,
) -> None:
    starts = StartsLater(tmp_path)
    await cancelled(starts)
    releasing = asyncio.create_task(starts.provider.release())
    await asyncio.sleep(0)
    assert len(starts.pool.running) == 1
    starts.may_answer.set()
    async with asyncio.timeout(5.0):
        await releasing
    assert starts.pool.running == {}
    assert list((tmp_path / "machines").iterdir()) == []


async def test_a_machine_whose_start_took_longer_than_its_deadline_is_stopped(
    tmp_path: Path,
) -> None:
    starts = StartsLater(tmp_path)
    with pytest.raises(MachineHung, match="/start_emulator"):
        await starts.provider.acquire(deadline_s=0.01)
    starts.may_answer.set()
    async with asyncio.timeout(5.0):
        await starts.provider.release()
    assert starts.pool.running == {}


async def test_a_start_without_an_answer_stays_in_the_file_with_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "CALL_DEADLINE_S", 0.01)
    starts = StartsLater(tmp_path)
    began_unix_s = time.time()
    await cancelled(starts)
    await starts.provider.release()
    (asked_unix_s,) = read_ledger(tmp_path / "machines" / "env-000.json").unanswered
    assert began_unix_s <= asked_unix_s <= time.time()


async def test_a_start_that_is_never_answered_is_given_up_and_costs_later_stops_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "LONGEST_BOOT_S", 0.0)
    starts = StartsLater(tmp_path)
    await cancelled(starts)
    async with asyncio.timeout(5.0):
        await starts.provider.release()
    assert len(read_ledger(tmp_path / "machines" / "env-000.json").unanswered) == 1


async def test_of_the_starts_without_an_answer_the_file_keeps_the_newest(tmp_path: Path) -> None:
    async def serve(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(504)

    kept = [float(number) for number in range(pool_module.MOST_UNANSWERED)]
    remember(tmp_path, unanswered=kept)
    with pytest.raises(CallFailed, match="504"):
        await pool_provider(FakePool(), tmp_path, serve=serve).acquire(deadline_s=30.0)
    *before, newest = read_ledger(tmp_path / "machines" / "env-000.json").unanswered
    assert before == kept[1:]
    assert newest > kept[-1]


async def test_a_stop_that_the_server_does_not_confirm_is_logged_with_its_machine(tmp_path: Path) -> None:
    pool = FakePool()
    pool.refused_stops = 1
    provider = pool_provider(pool, tmp_path)
    await provider.acquire(deadline_s=30.0)
    with structlog.testing.capture_logs() as logs:
        await provider.release()
    (machine,) = pool.running
    assert [(line["event"], line["machine"], line["reason"]) for line in logs] == [
        ("machine_not_stopped", machine, "status 503: busy")
    ]


# ---- what a lease is asked of is away ----


@pytest.mark.parametrize("how", ["refuses the connection", "502", "503"])
async def test_a_server_of_machines_that_restarts_is_waited_for(tmp_path: Path, how: str) -> None:
    pool = FakePool()
    away = 2

    async def serve(request: httpx2.Request) -> httpx2.Response:
        nonlocal away
        if request.url.path != "/start_emulator" or not away:
            return pool(request)
        away -= 1
        if how.isdecimal():
            return httpx2.Response(int(how), text="restarting")
        raise httpx2.ConnectError("connection refused")

    lease = await pool_provider(pool, tmp_path, serve=serve).acquire(deadline_s=30.0)
    assert lease.address.server == 5001
    assert read_ledger(tmp_path / "machines" / "env-000.json").unanswered == [], "it has started nothing"


async def test_a_server_of_machines_that_stays_away_is_no_fault_of_the_task_or_the_environment(
    tmp_path: Path,
) -> None:
    pool = FakePool()
    pool.away = 9
    with pytest.raises(ProviderAway, match=r"http://pool.test:50003 cannot be reached") as away:
        await pool_provider(pool, tmp_path).acquire(deadline_s=1.0)
    assert away.value.kind is FaultKind.SYSTEM
    assert not (tmp_path / "machines" / "env-000.json").exists()


FAILS_TWICE = 'echo >> {tries}; [ "$(wc -l < {tries})" -gt 2 ] || exit 1; echo done'


async def test_a_command_that_fails_at_once_is_repeated_before_it_is_a_fault(tmp_path: Path) -> None:
    pauses: list[float] = []

    async def no_sleep(seconds: float) -> None:
        pauses.append(seconds)

    script = ["sh", "-c", FAILS_TWICE.format(tries=tmp_path / "tries")]
    assert await run_until_done(script, "revert", deadline_s=30.0, sleep=no_sleep) == "done\n"
    assert pauses == [providers.COMMAND_RETRY_S] * 2


async def test_a_daemon_of_docker_that_restarts_is_waited_for(
    tmp_path: Path, docker: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "COMMAND_RETRY_S", 0.01)
    program, tries = tmp_path / "docker-of-a-daemon", tmp_path / "tries"
    program.write_text(f'#!/bin/sh\n{FAILS_TWICE.format(tries=tries)} > /dev/null; {tmp_path}/docker "$@"\n')
    program.chmod(0o755)
    lease = await provider_of(tmp_path, program=str(program)).acquire(deadline_s=20.0)
    assert lease.address.server == 32768
    assert len(docker()["running"]) == 1
