"""The real libraries take what they are given, also over a restart; a missing one is told with its remedy."""

from pathlib import Path

import pytest

from dart.config.config import load_config
from dart.core.errors import UnavailableError
from dart.preflight.requirements import missing_trackers, require_installation
from dart.tracking.writers import Point, TensorBoard, WeightsAndBiases
from tests.event_files import scalars


def told(version: int, loss: float = 0.5) -> Point:
    return Point(version=version, unix_s=1000.0 + version, figures={"update/loss": loss})


def test_tensorboard_has_each_point_once_also_after_a_writer_that_was_killed(tmp_path: Path) -> None:
    killed = TensorBoard(tmp_path, first=1)
    for version in (1, 2, 3):
        killed.write(told(version, loss=float(version)))
    killed.flush()  # and 3 was never noted as written

    again = TensorBoard(tmp_path, first=3)
    again.write(told(3, loss=30.0))
    again.write(told(4))
    again.close()
    killed.close()

    assert scalars(tmp_path, "update/loss") == {
        1: (1001.0, 1.0),
        2: (1002.0, 2.0),
        3: (1003.0, 30.0),
        4: (1004.0, 0.5),
    }


def test_weights_and_biases_keeps_an_offline_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="pip install 'dartrl[tracking]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_SILENT", "true")
    config = load_config(None, ['tracking.wandb_mode="offline"', f"run.dir={str(tmp_path / 'run')!r}"])
    writer = WeightsAndBiases(tmp_path, config, run_id="abcd1234")
    for version in (1, 2):
        writer.write(told(version))
    writer.close()

    (kept,) = tmp_path.glob("wandb/offline-run-*-abcd1234/run-abcd1234.wandb")
    assert b"update/loss" in kept.read_bytes()


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_missing_package_is_told_before_anything_starts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dart.preflight.requirements.find_spec", lambda _: None)
    config = load_config(None, [f'tracking.writers=["{name}"]'])

    (problem,) = missing_trackers(config)

    assert f"names {name!r}" in problem
    assert "pip install 'dartrl[tracking]'" in problem
    with pytest.raises(UnavailableError, match=r"tracking\.writers"):
        require_installation(config, (missing_trackers,))


def test_nobody_who_writes_nothing_needs_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dart.preflight.requirements.find_spec", lambda _: None)

    assert list(missing_trackers(load_config())) == []
