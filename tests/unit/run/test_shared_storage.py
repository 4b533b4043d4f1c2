"""What a start puts into object storage before anything runs."""

from pathlib import Path

import pytest

from dart.config.config import Config
from dart.core.errors import UnavailableError
from dart.core.run_directory import RunPaths
from dart.run.shared_storage import begin_storage


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
