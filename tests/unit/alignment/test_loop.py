"""What aligning a policy a second time does with what was made from the first one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dart.alignment import loop
from dart.alignment.folder import AlignmentFolder, Result
from dart.alignment.stages import AlignmentStage
from dart.config.config import Config
from dart.core.errors import UsageError


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
