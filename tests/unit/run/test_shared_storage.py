"""What a start puts into object storage before anything runs."""

from pathlib import Path

import pytest

from dart.config.config import Config
from dart.core.errors import RunDirectoryError, UnavailableError
from dart.core.run_directory import RunPaths
from dart.run import shared_storage
from dart.run.shared_storage import begin_storage, continue_storage
from dart.store.reader import StoreReader
from dart.store.run_checkpoints import Checkpoints, run_checkpoints
from tests.record_places import make_older_record


def config_of(folder: Path, **training: str) -> Config:
    blobs = (folder / "shared").as_uri()
    policy = str(folder / "base")
    return Config.model_validate(
        {
            "run": {"dir": str(folder), "blobs": blobs},
            "rollout": {"engine": "simulated" if training else "transformers"},
            "training": {"policy": policy, **training},
        }
    )


def test_a_start_without_its_policy_puts_nothing_into_the_storage(tmp_path: Path) -> None:
    config, paths = config_of(tmp_path), RunPaths(tmp_path)
    with pytest.raises(UnavailableError, match=r"no policy checkpoint in .*base, .*; nothing was started"):
        begin_storage(config, paths)
    assert not list((tmp_path / "shared").rglob("*"))

    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text("{}")
    assert begin_storage(config, paths)
    assert {path.name for path in (tmp_path / "shared").rglob("v0*/*/*")} == {"config.json"}


def test_a_run_that_reads_no_policy_starts_without_one(tmp_path: Path) -> None:
    assert begin_storage(config_of(tmp_path, learner="simulated"), RunPaths(tmp_path))


class Killed(BaseException):
    """The process of the start was killed."""


@pytest.mark.parametrize("is_published", [False, True])
def test_a_start_that_was_killed_on_a_lost_machine_is_repeated_elsewhere_after_its_owner_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_published: bool
) -> None:
    config = config_of(tmp_path, learner="simulated")

    def killed(config: Config, run_dir: Path) -> Checkpoints:
        if is_published:
            run_checkpoints(config, run_dir).publish(0, config.training.policy)
        raise Killed

    monkeypatch.setattr(shared_storage, "run_checkpoints", killed)
    with pytest.raises(Killed):
        begin_storage(config, RunPaths(tmp_path))
    monkeypatch.undo()

    elsewhere = RunPaths(tmp_path / "elsewhere")
    elsewhere.root.mkdir()
    owner = tmp_path / "shared" / "owner"
    with pytest.raises(RunDirectoryError) as refused:
        begin_storage(config, elsewhere)
    said = f"if its start was interrupted before it ran, delete the object {owner.as_uri()} and start again"
    assert said in str(refused.value)

    owner.unlink()
    assert begin_storage(config, elsewhere)


def test_the_prefix_of_a_run_that_has_trained_names_no_object_to_delete(tmp_path: Path) -> None:
    config = config_of(tmp_path, learner="simulated")
    begin_storage(config, RunPaths(tmp_path))
    run_checkpoints(config, tmp_path).publish(1, config.training.policy)
    with pytest.raises(RunDirectoryError, match=r"continue that run with --resume and its directory$"):
        begin_storage(config, RunPaths(tmp_path))


def test_a_run_with_a_record_at_an_older_migration_goes_on(tmp_path: Path) -> None:
    config, paths = config_of(tmp_path, learner="simulated"), RunPaths(tmp_path)
    paths.config.write_text(config.to_toml())
    begin_storage(config, paths)
    make_older_record(paths.store)
    continue_storage(config, paths)
    with StoreReader(paths.store) as record:
        newest = record.latest_version()
    assert newest is not None
    assert newest.version == 0
