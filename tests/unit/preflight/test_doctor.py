"""What the doctor finds, each with its remedy."""

import fcntl
import json
import os
import shutil
import socket
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from actors.board import ActorState, Board
from actors.process import start_ticks
from dart.config.config import Config, load_config
from dart.core.run_directory import RunPaths, claimed
from dart.preflight import doctor
from dart.preflight.doctor import CheckResult, CheckTarget, CheckVerdict
from dart.store.checkpoints import CheckpointState, write_checkpoint
from dart.store.store import Store
from dart.testing.trajectories import trajectory_for
from scripts.show_gpu_plan import PUBLISHED
from tests.fake_pool import of_osworld, remember

CONFIG: Config = load_config()


def target(folder: Path, ports: tuple[int, ...] = ()) -> CheckTarget:
    """A machine on which a run would lie in this folder."""
    return CheckTarget(config=load_config(None, [f"run.dir={str(folder)!r}"]), ports=ports)


def of_run(paths: RunPaths) -> CheckTarget:
    return CheckTarget(config=CONFIG, paths=paths)


def verdicts(found: list[CheckResult]) -> list[tuple[str, CheckVerdict]]:
    return [(one.topic, one.verdict) for one in found]


def test_every_finding_that_is_wrong_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "missing_packages", lambda _: iter(["not installed: x; run 'make setup'"]))
    monkeypatch.setattr(doctor, "missing_browser", lambda _: iter(["no browser at /x; name another"]))
    monkeypatch.setattr(doctor, "missing_policy", lambda _: iter(["no policy checkpoint in /x: make one"]))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**20))
    monkeypatch.setattr(doctor, "FILES_LOW", 2**70)

    found = doctor.run_checks(target(tmp_path / "new"))

    wrong = [one for one in found if one.verdict is CheckVerdict.WRONG]
    assert {"packages", "browser", "policy", "disk"} <= {one.topic for one in wrong}
    assert all(one.remedy for one in wrong)
    assert next(one for one in wrong if one.topic == "packages").remedy == "run 'make setup'"


def test_little_room_is_noted_and_none_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for free in (2**40, 2**30, 2**20):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        found += doctor.disk(target(tmp_path))

    assert [one.verdict for one in found] == [CheckVerdict.FINE, CheckVerdict.NOTE, CheckVerdict.WRONG]


def test_a_disk_without_room_for_the_checkpoints_of_a_large_policy_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED["UI-TARS-1.5-7B"]))
    settings = [f"training.policy={tmp_path}", f"run.dir={str(tmp_path / 'run')!r}"]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=47 * 2**30))
    (wrong,) = doctor.disk(CheckTarget(config=load_config(None, settings)))
    (fine,) = doctor.disk(CheckTarget(config=load_config(None, [*settings, "training.lora.rank=8"])))

    assert (wrong.verdict, fine.verdict) == (CheckVerdict.WRONG, CheckVerdict.FINE)
    assert wrong.found == (
        "4 checkpoints of 92.7 GiB (training.checkpoints_kept + 1) take 370.7 GiB, "
        f"and 47.0 GiB are free at {tmp_path}"
    )
    assert wrong.remedy == (
        "free 323.7 GiB, lower training.checkpoints_kept, train an adapter (training.lora.rank > 0), "
        "or choose a larger disk with --run-dir"
    )


def test_little_shared_memory_is_noted_where_gpus_exchange_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = CheckTarget(config=load_config(None, ["training.ranks=4"]))
    monkeypatch.setattr(doctor, "gpus_here", lambda: tuple("0123"))
    monkeypatch.setattr(doctor, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=64 * 2**20))
    (noted,) = doctor.shared_memory(ranks)
    assert noted.verdict is CheckVerdict.NOTE
    assert noted.found == f"{tmp_path} has 64.0 MiB"
    assert "--shm-size=8g" in noted.remedy
    assert list(doctor.shared_memory(target(tmp_path))) == [], "one rank has nothing to exchange"
    on_processors = CheckTarget(config=load_config(None, ["training.ranks=4", "training.device=cpu"]))
    assert list(doctor.shared_memory(on_processors)) == [], "ranks without GPUs exchange nothing between them"
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=8 * 2**30))
    assert verdicts(list(doctor.shared_memory(ranks))) == [("shared memory", CheckVerdict.FINE)]


def test_a_torch_that_was_not_installed_as_a_package_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.setattr(doctor, "of_gpus", lambda _: [])
    (found,) = doctor.gpu(CheckTarget(config=Config()))
    assert "torch none" in found.found


def test_named_gpus_that_are_not_here_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(doctor, "of_gpus", lambda _: [])
    config = load_config(None, ["rollout.engine=vllm", "rollout.gpus=[0, 1]"])
    wrong, _ = doctor.gpu(CheckTarget(config=config))
    assert wrong.verdict is CheckVerdict.WRONG
    assert wrong.found.endswith(
        "names GPU 1, which this process cannot use: it has GPU 0 (CUDA_VISIBLE_DEVICES=0)"
    )
    assert wrong.remedy.startswith("name others, leave rollout.gpus empty")


def test_a_port_somebody_listens_on_is_found(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (found,) = doctor.ports(target(tmp_path, ports=(port,)))

    assert found.verdict is CheckVerdict.WRONG
    assert f"port {port}" in found.found
    assert "ss -ltnp" in found.remedy


def test_a_browser_that_does_not_start_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "browser"
    broken.write_text("#!/bin/sh\necho libnss3.so is missing >&2\nexit 127\n")
    broken.chmod(0o755)

    found, *_ = doctor.browser(CheckTarget(config=load_config(None, [f"environments.executable={broken}"])))

    assert found.verdict is CheckVerdict.WRONG
    assert "is not a Chromium that starts: it said 'libnss3.so is missing'" in found.found


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    with claimed(tmp_path / "run", resume=False, config_toml="") as held:
        Board.create(held.paths.board).close()
        with Store(held.paths.store) as store:
            store.add_version()
    return RunPaths(tmp_path / "run")


def test_a_sound_run_that_has_ended_is_fine(paths: RunPaths) -> None:
    found = doctor.run_checks(of_run(paths), (doctor.run_state, doctor.record))

    assert verdicts(found) == [
        ("run", CheckVerdict.FINE),
        ("processes", CheckVerdict.FINE),
        ("books", CheckVerdict.FINE),
        ("record", CheckVerdict.FINE),
    ]


def test_a_newest_checkpoint_that_is_damaged_is_found_with_what_to_do(paths: RunPaths) -> None:
    assert list(doctor.checkpoint(of_run(paths))) == [], "version 0 is not the run's own"
    with Store(paths.store) as store:
        group_id = store.open_group("click-test", 7, 1, 10, 0)
        lease = store.lease_rollout(group_id, "env-000", 60.0)
        store.finish_rollout(lease.rollout_id, 1, trajectory_for(lease))
        batch = store.lease_batch([group_id], 60.0)
        store.commit_update(batch.batch_id, 1, 1, {})
    folder = write_checkpoint(
        paths.checkpoints,
        CheckpointState(version=1, learner={}),
        lambda folder: (folder / "weights").write_bytes(b"12") and None,
    )
    (fine,) = doctor.checkpoint(of_run(paths))
    (folder / "weights").write_bytes(b"13")
    (wrong,) = doctor.checkpoint(of_run(paths))
    assert (fine.verdict, wrong.verdict) == (CheckVerdict.FINE, CheckVerdict.WRONG)
    assert wrong.found.startswith(f"checkpoint {folder}: weights is corrupt: expected sha256")
    assert wrong.remedy == "restore the folder from a copy, or start a new run in another directory"


def test_a_run_whose_record_is_gone_is_told(paths: RunPaths) -> None:
    paths.store.unlink()
    (found,) = doctor.record(of_run(paths))
    assert (found.verdict, found.found) == (CheckVerdict.WRONG, f"store {paths.store} does not exist")
    assert list(doctor.checkpoint(of_run(paths))) == []


def test_an_actor_that_outlived_its_run_is_found_by_pid_and_start(paths: RunPaths) -> None:
    board = Board.create(paths.board)
    for name, ticks in (("env-000", start_ticks(os.getpid())), ("env-001", 1)):
        slot = board.claim(name, "environment_pool")
        board.set_state(slot, ActorState.RUNNING, pid=os.getpid(), pid_start_ticks=ticks)
    board.close()

    found = [one for one in doctor.run_state(of_run(paths)) if one.topic == "processes"]

    assert [one.found.split(" is ")[0] for one in found] == [f"env-000 (process {os.getpid()})"]
    assert found[0].remedy.endswith(f"'kill -9 {os.getpid()}'")


def test_machines_that_a_run_has_left_are_named_with_the_command_that_gives_them_back(
    paths: RunPaths,
) -> None:
    remember(paths.root, emulator_ids=["emulator-7"])
    config = of_osworld("provider=pool", "pool.server=http://127.0.0.1:1")

    (wrong,) = [
        one for one in doctor.run_state(CheckTarget(config=config, paths=paths)) if one.topic == "machines"
    ]

    assert wrong.verdict is CheckVerdict.WRONG
    assert "have left machines emulator-7 of http://127.0.0.1:1, which may still run" in wrong.found
    assert f"`dartrl down --run-dir {paths.root}`" in wrong.remedy


@pytest.mark.parametrize(
    ("recorded", "told"),
    [
        ("", "is being started"),
        (f"1 {start_ticks(1)}\n", "process 1"),
        ("4194305 1\n", "is not running"),
    ],
)
def test_who_runs_it_is_told_as_far_as_it_is_known(paths: RunPaths, recorded: str, told: str) -> None:
    """Processes that were left over hold the lock of a main process that is gone."""
    paths.lock.write_text(recorded)
    with paths.lock.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = next(iter(doctor.run_state(of_run(paths))))

    assert found.found.endswith(told)


def test_a_record_that_is_none_is_told_with_its_remedy(paths: RunPaths) -> None:
    paths.store.write_bytes(b"no database" * 100)

    (found,) = doctor.record(of_run(paths))

    assert found.verdict is CheckVerdict.WRONG
    assert found.remedy
