"""Grounding by reinforcement learning, by its real command and with its bundled job, made small."""

import subprocess
from pathlib import Path

import pytest

from dart.core.boxes import Box
from dart.core.records import EvaluationPhase
from dart.core.run_directory import RunPaths
from dart.core.screenspot import write_screenspot
from dart.core.seeds import is_held_out
from dart.store.reader import StoreReader
from tests.pointing import make_pointing
from tests.real_command import train
from tests.unit.grounding.samples import samples

DEADLINE_S = 600.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(700)]

SMALL = (
    *("run.minutes=9", "environments.count=2", "environments.grounding.reward=gaussian"),
    *("training.groups_per_update=2", "training.updates=2", "training.minibatches=1"),
    *("curation.rollouts_per_group=4", "evaluation.seeds_per_task=6", "evaluation.greedy_seeds_per_task=6"),
)


def made(folder: Path, lefts: range) -> None:
    """A data set of one large and one small square a screen."""
    places = [{"red": Box(left, 60, left + 80, 140), "blue": Box(5, 150, 45, 200)} for left in lefts]
    write_screenspot(folder, [sample for one in places for sample in samples(folder, one)])


def trained(run: Path, data: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    settings = (*SMALL, f'environments.grounding.data=["{data}"]', *more)
    return train("configs/grounding-rl.toml", run, settings, deadline_s=DEADLINE_S)


@pytest.mark.long
def test_a_run_learns_from_the_distance_of_clicks_and_is_measured_by_hits(tmp_path: Path) -> None:
    made(tmp_path / "pages" / "train", range(0, 70, 10))
    made(tmp_path / "pages" / "held-out", range(5, 35, 10))
    ended = trained(tmp_path / "run", tmp_path / "pages")

    assert ended.returncode == 0, ended.stderr
    with StoreReader(RunPaths(tmp_path / "run").store) as record:
        assert record.integrity(staleness_bound=1) == ()
        assert record.latest_version() is not None
        rewards = [reward for _, reward, _ in record.rewards_over_time()]
        assert any(0.0 < reward < 1.0 for reward in rewards)
        assert record.steps_played() == len(rewards)
        for phase in EvaluationPhase:
            measured = record.evaluations(phase)
            assert len(measured) == 12
            assert {one.reward for one in measured} <= {0.0, 1.0}
            assert all(is_held_out(one.seed) for one in measured)


@pytest.mark.long
def test_a_checkpoint_with_the_layout_of_qwen_is_trained_by_its_clicks(
    tiny_qwen: Path, tmp_path: Path
) -> None:
    make_pointing(tiny_qwen, tmp_path / "pointing")
    made(tmp_path / "pages" / "train", range(0, 70, 10))
    made(tmp_path / "pages" / "held-out", range(5, 35, 10))
    policy = f"training.policy={tmp_path / 'pointing'}"
    ended = trained(tmp_path / "run", tmp_path / "pages", policy, "context.answer_tokens=40")

    assert ended.returncode == 0, ended.stderr
    with StoreReader(RunPaths(tmp_path / "run").store) as record:
        assert record.integrity(staleness_bound=1) == ()
        version = record.latest_version()
        assert version is not None
        assert version.version > 0
        assert record.steps_played() > 0


def test_a_run_without_its_data_does_not_start_and_says_why(tmp_path: Path) -> None:
    ended = trained(tmp_path / "run", tmp_path / "pages")

    assert ended.returncode != 0
    assert f"{tmp_path / 'pages'} has no annotations" in ended.stderr
    assert not RunPaths(tmp_path / "run").store.exists()
