"""Steps on their way to the store: whole, or refused."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from actors.codec import MAX_MESSAGE_BYTES
from actors.testing import InMemorySystem
from dart.config.config import Config
from dart.core import messages as m
from dart.core.run_directory import RunPaths
from dart.store import step_files
from dart.store.actor import StoreActor
from dart.store.errors import StoreConflict
from dart.store.event_retention import EVERY_S
from dart.store.store import Store
from dart.testing.trajectories import step_at, trajectory_for

LONG = tuple(
    replace(
        step_at(3, number),
        prompt_ids=tuple(range(14_000)),
        token_ids=tuple(range(150)),
        logprobs=(-1.0 / 3.0,) * 150,
        entropies=(1.0 / 7.0,) * 150,
    )
    for number in range(30)
)
"""An episode of a 7 B policy on a desktop."""


def test_an_episode_that_is_more_than_mail_carries_arrives_as_it_was_sent(tmp_path: Path) -> None:
    step_file = step_files.send(tmp_path, 7, 1, LONG)

    assert Path(step_file.path).stat().st_size > 10 * MAX_MESSAGE_BYTES
    assert step_files.opened(step_file) == LONG
    step_files.discard(step_file)
    step_files.discard(step_file)
    assert list(tmp_path.iterdir()) == []


def test_steps_that_are_gone_or_damaged_are_refused_by_name(tmp_path: Path) -> None:
    step_file = step_files.send(tmp_path, 7, 1, LONG[:1])
    path = Path(step_file.path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreConflict, match=r"7-1\.steps has sha256"):
        step_files.opened(step_file)
    path.unlink()
    with pytest.raises(StoreConflict, match=r"7-1\.steps is missing"):
        step_files.opened(step_file)


def test_files_of_rollouts_that_are_not_played_under_their_fence_are_swept(tmp_path: Path) -> None:
    for rollout_id, fence in ((7, 1), (7, 2), (8, 1)):
        step_files.send(tmp_path, rollout_id, fence, LONG[:1])
    (tmp_path / "notes.txt").touch()

    assert step_files.sweep(tmp_path, lambda *lease: lease == (7, 2), older_than_unix_s=0.0) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["7-2.steps", "notes.txt"]
    assert step_files.sweep(tmp_path / "none", lambda *lease: True, older_than_unix_s=0.0) == 0


def test_a_file_that_was_never_written_to_its_end_is_swept_when_it_is_old(tmp_path: Path) -> None:
    for name, unix_s in ((".a.part", 100.0), (".b.part", 900.0)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (unix_s, unix_s))

    assert step_files.sweep(tmp_path, lambda *lease: True, older_than_unix_s=500.0) == 1
    assert [path.name for path in tmp_path.iterdir()] == [".b.part"]


def test_the_store_sweeps_what_a_killed_environment_left_when_its_rollout_has_ended(tmp_path: Path) -> None:
    """And answers a repeated report without the file."""
    path, folder = tmp_path / "store.db", RunPaths(tmp_path).step_files
    folder.mkdir(parents=True)
    with Store(path) as store:
        store.add_version("checkpoints/0")
        group = store.open_group("click-test", 7, 2, 10, 0)
        leases = [store.lease_rollout(group, "env-000", 60.0) for _ in range(2)]
    sent = [step_files.send(folder, lease.rollout_id, lease.fence, (step_at(0),)) for lease in leases]
    finish = m.FinishRollout(
        rollout_id=1, fence=1, trajectory=replace(trajectory_for(leases[0]), steps=()), steps=sent[0]
    )
    with InMemorySystem(tmp_path) as bench:
        args = {"store": str(path), "config": Config().model_dump(mode="json")}
        bench.start(StoreActor, "store", args=args)
        first = bench.ask("store", finish)
        bench.settle()
        assert first.result() == m.CallResult(value="accepted")  # and its environment is killed now
        bench.advance(EVERY_S + 1.0)
        assert [file.name for file in folder.iterdir()] == ["2-1.steps"]
        again = bench.ask("store", finish)
        bench.settle()
        assert again.result() == m.CallResult(value="duplicate")
