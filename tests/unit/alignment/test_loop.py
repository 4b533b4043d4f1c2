"""What aligning a policy a second time does with what was made from the first one."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dart.alignment import loop
from dart.alignment.folder import AlignmentFolder, Result
from dart.alignment.stages import AlignmentStage
from dart.config.config import Config
from dart.core.errors import UsageError
from dart.core.run_directory import keep_config
from dart.store.database import database_at
from dart.store.migrations import upgrade

ALL_HIT = {"name": "all", "samples": 1, "accuracy": 1.0, "low": 0.0, "high": 1.0}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AlignmentFolder:
    """An alignment that measured the base policy `first`, with the training run of an earlier policy."""

    def aligned(work: Callable[[], Result]) -> Result:
        made: Any = work
        made.args[2].mkdir()
        return {"site_samples": 1, "generic_samples": 0, "generic_share": 0.0, "updates": 1}

    monkeypatch.setattr(loop, "_with_model", aligned)
    folder = AlignmentFolder(tmp_path)
    folder.finish(AlignmentStage.EXPLORE, {})
    folder.of(AlignmentStage.DATA).mkdir()
    folder.finish(AlignmentStage.DATA, {})
    folder.finish(AlignmentStage.MEASURE_BASE, {"checkpoint": "first"})
    (folder.of(AlignmentStage.TRAIN) / "checkpoints").mkdir(parents=True)
    return folder


def measured_on(held_out: str) -> Result:
    """What measuring the base policy on held-out data gave."""
    return {"checkpoint": "first", "generic": {"data": held_out} if held_out else None}


def measure_aligned(
    folder: AlignmentFolder, held_out: str, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str, str]]:
    """Run the stage; the measured policies, each with its held-out data."""
    measured: list[tuple[str, str]] = []

    def measure(work: Callable[[], Result]) -> Result:
        made: Any = work
        checkpoint, _, generic = made.args
        measured.append((checkpoint.name, generic))
        return {"site": {"rows": [ALL_HIT]}, "generic": {"data": generic, "rows": [ALL_HIT]}}

    monkeypatch.setattr(loop, "_with_model", measure)
    folder.finish(AlignmentStage.ALIGN, {})
    config = Config.model_validate({"grounding": {"base": "second", "held_out": held_out}})
    loop._Stages(config, folder, print).run(AlignmentStage.MEASURE_ALIGNED)
    return measured


def align(folder: AlignmentFolder, base: str) -> None:
    config = Config.model_validate({"grounding": {"base": base}})
    loop._Stages(config, folder, print).run(AlignmentStage.ALIGN)


def test_a_policy_that_is_aligned_anew_is_trained_anew(folder: AlignmentFolder) -> None:
    align(folder, "first")

    assert AlignmentStage.ALIGN in folder.results()
    assert not folder.of(AlignmentStage.TRAIN).exists()


def test_another_base_than_the_measured_one_is_refused_and_measured_by_resume(
    folder: AlignmentFolder,
) -> None:
    with pytest.raises(UsageError, match=r"base is second, .* measured is first; --resume"):
        align(folder, "second")

    assert AlignmentStage.MEASURE_BASE not in folder.results()
    assert folder.of(AlignmentStage.TRAIN).exists(), "nothing is lost"


@pytest.mark.parametrize("before", ["other", ""])
def test_other_held_out_data_than_before_measures_the_aligned_base_again_and_trains_nothing(
    folder: AlignmentFolder, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    folder.finish(AlignmentStage.MEASURE_BASE, measured_on(before))

    assert measure_aligned(folder, "later", monkeypatch) == [("first", "later"), ("align", "later")]
    assert folder.results()[AlignmentStage.MEASURE_BASE]["generic"]["data"] == "later"
    assert AlignmentStage.ALIGN in folder.results()


def test_the_same_held_out_data_measures_the_base_once(
    folder: AlignmentFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.finish(AlignmentStage.MEASURE_BASE, measured_on("same"))

    assert measure_aligned(folder, "same", monkeypatch) == [("align", "same")]


def test_after_an_interruption_no_result_of_an_earlier_round_counts(
    folder: AlignmentFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[AlignmentStage] = []

    def run(stages: loop._Stages, stage: AlignmentStage) -> None:
        begun.append(stage)
        if stage is AlignmentStage.TRAIN:
            raise loop.StageInterrupted(signal.SIGINT)
        stages._folder.finish(stage, {})

    monkeypatch.setattr(loop._Stages, "run", run)
    monkeypatch.setattr(loop, "result_line", lambda *_: "")
    config = Config.model_validate({"run": {"dir": str(folder.root)}})
    folder.keep_config(config.to_toml())
    for stage in AlignmentStage:
        folder.finish(stage, {})
    folder.withdraw(AlignmentStage.ALIGN)

    for _ in range(2):
        assert loop.align(config, resume=True, say=print).stage is AlignmentStage.TRAIN
    assert begun == [
        AlignmentStage.ALIGN,
        AlignmentStage.MEASURE_ALIGNED,
        AlignmentStage.TRAIN,
        AlignmentStage.TRAIN,
    ]


def test_an_exploration_of_an_earlier_version_of_dartrl_gives_its_data(folder: AlignmentFolder) -> None:
    paths = folder.run_of(AlignmentStage.EXPLORE)
    paths.root.mkdir()
    config = Config.model_validate({"exploration": {"tasks": ["sites/shop"]}})
    keep_config(paths, config.to_toml())
    with database_at(paths.record).open_engine().connect() as connection, connection.begin():
        upgrade(connection, to="0012")

    with pytest.raises(UsageError, match="gives no samples: it has 0 screens"):
        loop._Stages(config, folder, print).run(AlignmentStage.DATA)
