"""What killed environments have left is given back when the run does not run: machines and containers."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from actors.orphans import identity_of
from actors.process import start_ticks
from dart.config.config import Config, load_config
from dart.config.sections import OSWorldPoolSettings
from dart.core.run_directory import RunPaths
from dart.environments.faults import MachineHung
from dart.environments.leftovers import GIVE_BACK_S, GivenBack, give_back, left_behind
from dart.environments.osworld import give_back as give_back_module
from dart.environments.osworld.give_back import give_back_machines
from dart.environments.osworld.machine_ledger import read_ledger, write_ledger
from dart.environments.osworld.machine_server import MachineServer
from tests.fake_pool import TOKEN, FakePool, of_osworld, remember, served

NOW_UNIX_S = 1_000_000.0
MINUTE_S = 60.0


async def no_sleep(_: float) -> None:
    """Wait for nothing."""


async def given_back(root: Path, pool: FakePool, *, token: str = TOKEN, **settings: Any) -> GivenBack:
    of_pool = OSWorldPoolSettings(server="http://pool.test", **settings)
    environ, transport = {"DARTRL_POOL_TOKEN": token}, httpx2.MockTransport(pool)
    return await give_back_machines(
        MachineServer(of_pool, environ=environ, transport=transport),
        root / "machines",
        stops_strays=of_pool.own_token,
        sleep=no_sleep,
        unix_s=lambda: NOW_UNIX_S,
    )


@pytest.fixture
def one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is so short that each machine is tried once."""
    monkeypatch.setattr(give_back_module, "GIVE_BACK_S", give_back_module.STOP_RETRY_S)


async def test_the_machines_of_killed_environments_are_stopped_also_of_those_that_are_not_started_again(
    tmp_path: Path,
) -> None:
    pool = FakePool()
    pool.running = {"a": 1, "b": 2, "c": 3, "another program's": 4}
    remember(tmp_path, "env-000", emulator_ids=["a", "b"])
    remember(tmp_path, "env-063", emulator_ids=["c"])
    assert await given_back(tmp_path, pool) == GivenBack(count=3)
    assert list(pool.running) == ["another program's"]
    assert list((tmp_path / "machines").iterdir()) == []


async def test_a_stop_that_is_refused_is_tried_again(tmp_path: Path) -> None:
    pool = FakePool()
    pool.running, pool.refused_stops = {"a": 1}, 2
    remember(tmp_path, emulator_ids=["a"])
    assert await given_back(tmp_path, pool) == GivenBack(count=1)
    assert pool.running == {}


@pytest.mark.usefixtures("one_try")
async def test_machines_that_cannot_be_stopped_are_named_with_the_reason_and_stay_in_their_files(
    tmp_path: Path,
) -> None:
    pool = FakePool()
    pool.running, pool.refused_stops = {"a": 1, "b": 1}, float("inf")
    path = remember(tmp_path, emulator_ids=["a", "b"])
    given = await given_back(tmp_path, pool)
    assert given == GivenBack(left=("machines a, b of http://pool.test: status 503: busy",))
    assert json.loads(path.read_text())["emulator_ids"] == ["a", "b"]


@pytest.mark.usefixtures("one_try")
async def test_a_server_that_cannot_be_reached_is_named_with_the_machines_that_may_still_run(
    tmp_path: Path,
) -> None:
    def is_away(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("connection refused")

    remember(tmp_path, emulator_ids=["a"], unanswered=[NOW_UNIX_S - 5])
    machines, start = (await given_back(tmp_path, is_away)).left  # type: ignore[arg-type]
    assert machines.startswith(
        "machines a of http://pool.test: http://pool.test cannot be reached (connection"
    )
    assert start.endswith("without an answer: the server does not list its machines")


async def test_a_killed_process_that_is_still_there_holds_no_machine(tmp_path: Path) -> None:
    pool = FakePool()
    pool.running = {"left": 9}
    pid = os.getpid()
    remember(tmp_path, emulator_ids=["left"], pid=pid, start_ticks=start_ticks(pid))
    assert await given_back(tmp_path, pool) == GivenBack(count=1)
    assert pool.running == {}


async def test_a_copy_of_the_directory_of_a_run_leaves_the_machines_to_the_original_while_it_runs(
    tmp_path: Path,
) -> None:
    pool = FakePool()
    pool.running = {"held": 9}
    original, pid = tmp_path / "original", os.getpid()
    original.mkdir()
    path = remember(original, emulator_ids=["held"], pid=pid, start_ticks=start_ticks(pid))
    ledger = msgspec.structs.replace(read_ledger(path), folder=identity_of(path.parent))
    write_ledger(path, ledger)
    copy = Path(shutil.copytree(original, tmp_path / "copy"))

    assert await given_back(copy, pool) == GivenBack()
    assert list(pool.running) == ["held"]

    write_ledger(path, msgspec.structs.replace(ledger, start_ticks=ledger.start_ticks + 1))  # it has ended
    shutil.copytree(original, copy, dirs_exist_ok=True)
    assert await given_back(copy, pool) == GivenBack(count=1)
    assert pool.running == {}


async def test_without_a_token_the_machines_are_named_with_the_variable_that_is_empty(tmp_path: Path) -> None:
    remember(tmp_path, emulator_ids=["a"])
    (left,) = (await given_back(tmp_path, FakePool(), token="")).left
    assert left == (
        "machines a of http://pool.test: the environment variable DARTRL_POOL_TOKEN is empty; set it to your "
        "token"
    )


async def test_a_machine_that_came_from_a_start_without_an_answer_is_stopped_with_a_token_of_our_own(
    tmp_path: Path,
) -> None:
    pool = FakePool()
    pool.running = {"left": 18, "of an evaluation beside the next start": 5}
    path = remember(tmp_path, unanswered=[NOW_UNIX_S - 20 * MINUTE_S])
    assert await given_back(tmp_path, pool, own_token=True) == GivenBack(count=1)
    assert list(pool.running) == ["of an evaluation beside the next start"]
    assert not path.exists()


async def test_with_a_shared_token_machines_that_may_come_from_such_a_start_are_named_and_not_stopped(
    tmp_path: Path,
) -> None:
    pool = FakePool()
    pool.running = {"older": 25, "may be": 18, "may be, too": 12, "younger": 5}
    path = remember(tmp_path, "env-007", unanswered=[NOW_UNIX_S - 20 * MINUTE_S])
    given = await given_back(tmp_path, pool)
    assert given.left == (
        "a machine that env-007 asked http://pool.test for at 1970-01-12T13:26:40+00:00, without an answer: "
        "the age of may be, may be, too fits; by POST /stop_emulator, stop what no other program uses",
    )
    assert len(pool.running) == 4
    assert path.exists()
    del pool.running["may be"], pool.running["may be, too"]
    assert await given_back(tmp_path, pool) == GivenBack()
    assert not path.exists()


async def test_a_start_whose_machine_may_still_be_booting_is_named(tmp_path: Path) -> None:
    path = remember(tmp_path, unanswered=[NOW_UNIX_S - 60.0])
    (left,) = (await given_back(tmp_path, FakePool(), own_token=True)).left
    assert left.endswith("without an answer: a boot may still be under way")
    assert path.exists()


async def test_starts_of_one_environment_that_may_still_run_for_the_same_reason_are_one_line(
    tmp_path: Path,
) -> None:
    pool = FakePool()
    pool.running = {"old": 18}
    ages_s = (30.0, 45.0, 60.0, 20 * MINUTE_S, 40 * MINUTE_S)
    remember(tmp_path, unanswered=[NOW_UNIX_S - age_s for age_s in ages_s])
    assert (await given_back(tmp_path, pool)).left == (
        "a machine that env-000 asked http://pool.test for at 1970-01-12T13:26:40+00:00, without an answer: "
        "the age of old fits; by POST /stop_emulator, stop what no other program uses",
        "3 machines that env-000 asked http://pool.test for between 1970-01-12T13:45:40+00:00 and "
        "1970-01-12T13:46:10+00:00, without an answer: a boot may still be under way",
    )


# ---- by the configuration of a run ----


def test_a_run_on_other_environments_leaves_nothing(tmp_path: Path) -> None:
    assert left_behind(load_config(), RunPaths(tmp_path)) == ()
    assert give_back(load_config(), RunPaths(tmp_path)) == GivenBack()


def test_what_a_run_has_left_is_named_without_asking_the_server(tmp_path: Path) -> None:
    remember(tmp_path, "env-000", emulator_ids=["a", "b"])
    remember(tmp_path, "env-001", emulator_ids=["c"], unanswered=[0.0])
    remember(tmp_path, "env-002", unanswered=[60.0, 0.0, 30.0])
    config = of_osworld("provider=pool", "pool.server=http://127.0.0.1:1")
    assert left_behind(config, RunPaths(tmp_path)) == (
        "machines a, b, c of http://127.0.0.1:1",
        "a machine that env-001 asked http://127.0.0.1:1 for at 1970-01-01T00:00:00+00:00, without an answer",
        "3 machines that env-002 asked http://127.0.0.1:1 for between 1970-01-01T00:00:00+00:00 and "
        "1970-01-01T00:01:00+00:00, without an answer",
    )


def test_machines_are_given_back_to_a_real_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DARTRL_POOL_TOKEN", TOKEN)
    pool = FakePool()
    pool.running = {"a": 1}
    remember(tmp_path, emulator_ids=["a"])
    with served(pool) as address:
        config = of_osworld("provider=pool", f"pool.server={address}")
        assert give_back(config, RunPaths(tmp_path)) == GivenBack(count=1)
    assert pool.running == {}


FAKE_DOCKER = """#!{python}
import pathlib, sys
running = pathlib.Path({running!r})
if sys.argv[1] == "ps":
    print(running.read_text() if sys.argv[-1] == {label!r} else "")
elif sys.argv[1] == "rm":
    running.write_text(" ".join(set(running.read_text().split()) - set(sys.argv[2:])))
"""


def test_the_containers_of_a_run_are_found_by_their_label_and_removed(tmp_path: Path) -> None:
    program, running = tmp_path / "docker", tmp_path / "running"
    running.write_text("c1 c2")
    label = f"label=dartrl.run={tmp_path}"
    program.write_text(FAKE_DOCKER.format(python=sys.executable, running=str(running), label=label))
    program.chmod(0o755)
    config = of_osworld("provider=docker", f"docker.program={program}")
    assert left_behind(config, RunPaths(tmp_path)) == ("containers c1, c2 of docker",)
    assert give_back(config, RunPaths(tmp_path)) == GivenBack(count=2)
    assert running.read_text() == ""
    assert left_behind(config, RunPaths(tmp_path)) == ()


def begun_in(run_dir: Path, config: Config) -> Config:
    return config.model_copy(update={"run": config.run.model_copy(update={"dir": run_dir})})


@pytest.mark.parametrize(("is_copy", "left"), [(False, ("containers c1 of docker",)), (True, ())])
def test_the_containers_of_a_run_that_was_moved_are_found_and_those_of_a_copied_one_stay(
    tmp_path: Path, is_copy: bool, left: tuple[str, ...]
) -> None:
    earlier, program, running = tmp_path / "earlier", tmp_path / "docker", tmp_path / "running"
    running.write_text("c1")
    label = f"label=dartrl.run={earlier}"
    program.write_text(FAKE_DOCKER.format(python=sys.executable, running=str(running), label=label))
    program.chmod(0o755)
    if is_copy:
        earlier.mkdir()
    config = begun_in(earlier, of_osworld("provider=docker", f"docker.program={program}"))
    now = RunPaths(tmp_path / "now")

    assert left_behind(config, now) == left
    assert give_back(config, now) == GivenBack(count=len(left))
    assert running.read_text() == ("c1" if is_copy else "")


def test_docker_has_one_deadline_to_give_back_containers_and_a_short_one_to_name_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadlines_s: list[float] = []

    async def hangs(*_: Any, deadline_s: float, **__: Any) -> None:
        deadlines_s.append(deadline_s)
        raise MachineHung("docker", "rm", deadline_s)

    async def finds(*_: Any, deadline_s: float, **__: Any) -> list[str]:
        deadlines_s.append(deadline_s)
        return ["c1"]

    monkeypatch.setattr(give_back_module, "GIVE_BACK_S", 0.1)
    monkeypatch.setattr(give_back_module, "labelled_containers", finds)
    monkeypatch.setattr(give_back_module, "remove_containers", hangs)
    config = begun_in(tmp_path, of_osworld("provider=docker"))
    left_behind(config, RunPaths(tmp_path))
    (left,) = give_back(config, RunPaths(tmp_path)).left
    naming_s, finding_s, removing_s = deadlines_s
    assert naming_s <= give_back_module.LOOK_DEADLINE_S < GIVE_BACK_S
    assert removing_s <= finding_s <= 0.1
    assert "docker did not respond during rm" in left


def test_without_docker_it_is_said_that_containers_may_run_and_how_to_find_them(tmp_path: Path) -> None:
    config = begun_in(tmp_path, of_osworld("provider=docker", "docker.program=/no/docker"))
    (left,) = give_back(config, RunPaths(tmp_path)).left
    assert left.startswith(f"containers with the label dartrl.run={tmp_path}: /no/docker failed at ps: ")
