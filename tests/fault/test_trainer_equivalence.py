"""A trainer that is killed at named moments ends with the weights of one that is not, bit for bit.

Store, curator, trainer, record and kills are real; the batches were sampled before. One process computes, on
one thread of the CPU. What may differ by design is named: `WALL_CLOCK`, and the fences of leases, which count
how often a batch was leased.
"""

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from actors.system import ActorSystem
from dart.config.config import Config
from dart.core.run_directory import RunPaths
from dart.run.tree import root_of, single_children
from dart.store.checkpoints import files_of, list_checkpoints, load_checkpoint, sha256_of
from dart.store.integrity import check
from dart.store.reader import StoreReader
from tests.fault.kill_moments import AT_START, TRAINER_PLACES, Moment, Plan
from tests.fault.recorded_batches import config_of, record_batches
from tests.patience import slowness

WALL_CLOCK = frozenset({"seconds"})
"""Metrics of an update that are times."""

KEPT = 3
"""Checkpoints that are kept, few enough that old ones are pruned."""

RUN_DEADLINE_S = 120.0

TRAINED = """
    SELECT b.version, g.group_id, r.rollout_id, r.state FROM batches b
    JOIN groups g ON g.batch_id = b.batch_id JOIN rollouts r ON r.group_id = g.group_id
    ORDER BY b.version, g.group_id, r.rollout_id
"""
LEASED_TWICE = "SELECT count(*) FROM batches WHERE fence > 1"

MOMENTS = [
    *(Moment(name=name, after=number) for number, name in enumerate(TRAINER_PLACES) if name not in AT_START),
    *(Moment(name=name) for name in AT_START),
]
"""Each in an update of its own, and those of a start when the trainer is started after the last of these."""

UPDATES = len(TRAINER_PLACES) + 3


@dataclass(frozen=True, slots=True)
class Trained:
    """What is left of a run that has made all its updates."""

    paths: RunPaths
    config: Config
    struck: Sequence[str]

    def files(self) -> dict[str, str]:
        """The hash of every file of every checkpoint: weights, optimizer, settings."""
        folders = list_checkpoints(self.paths.checkpoints)
        return {
            f"{folder.name}/{file.relative_to(folder)}": sha256_of(file)
            for folder in folders
            for file in files_of(folder)
        }

    def metrics(self) -> list[dict[str, float]]:
        """The figures of every update that are no times: loss, norm of the gradient and so on."""
        with StoreReader(self.paths.store) as reader:
            versions = reader.versions()
        return [
            {name: value for name, value in version.metrics.items() if name not in WALL_CLOCK}
            for version in versions
        ]

    def query(self, sql: str) -> list[Any]:
        with closing(sqlite3.connect(f"file:{self.paths.store}?mode=ro", uri=True)) as connection:
            return connection.execute(sql).fetchall()


def config_at(folder: Path) -> Config:
    return config_of(
        folder,
        [
            f"training.updates={UPDATES}",
            f"training.checkpoints_kept={KEPT}",
            "training.groups_per_update=1",
            "training.minibatches=2",
            "training.micro_batch=2",
            "training.lr=1e-3",
            "training.warmup_updates=5",
            "training.threads=1",
            f"curation.staleness={UPDATES}",
            "curation.rollouts_per_group=4",
            "curation.poll_s=0.02",
            "evaluation.before=false",
            "evaluation.after=false",
            "supervision.root.max_restarts=1000",
            "supervision.trainer.backoff.initial_s=0.01",
            "supervision.trainer.backoff.max_s=0.01",
            "supervision.trainer.hang_deadline_s=600.0",
            "supervision.trainer.start_deadline_s=600.0",
            "supervision.curator.hang_deadline_s=600.0",
            "supervision.curator.start_deadline_s=600.0",
        ],
    )


@contextlib.contextmanager
def copied(recorded: Path) -> Iterator[Path]:
    """A copy of a run directory, with a path that is short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="equal-", dir="/tmp"))
    try:
        shutil.copytree(recorded, folder / "run")
        (folder / "mail").mkdir()
        yield folder
    finally:
        shutil.rmtree(folder)


def trained(folder: Path, kills: Sequence[Moment]) -> Trained:
    """Make all updates; the trainer is killed at each of these moments."""
    paths = RunPaths(folder / "run")
    for one in paths.folders:
        one.mkdir(parents=True, exist_ok=True)
    config = config_at(paths.root)
    paths.config.write_text(config.to_toml())
    Plan.make(folder, kills)
    args = {
        "config": config.model_dump(mode="json"),
        "store": str(paths.store),
        "plan": str(folder),
        "training_ends_boot_s": 1e12,
    }
    store, curator, _, trainer = single_children(config, args)
    preload = "dart.training.learner", "dart.policy.small_policy"  # torch is loaded once, not at each restart
    trainer = replace(trainer, actor="tests.fault.kill_moments:KilledTrainer", preload=preload)
    system = ActorSystem(
        paths.root, folder / "mail", root_of(config, (store, curator, trainer)), prints_reports=False
    )
    with system:
        has_ended = system.wait(RUN_DEADLINE_S * slowness())
        struck = Plan.struck(folder)
        assert has_ended, f"not all updates were made; killed so far: {struck}"
    return Trained(paths, config, struck)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "run"
    record_batches(folder, UPDATES)
    return folder


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_trainer_killed_at_every_named_moment_ends_bitwise_equal_to_one_that_was_not(
    recorded: Path,
) -> None:
    assert len(MOMENTS) >= 20
    with copied(recorded) as calm_folder:
        calm = trained(calm_folder, [])
        files, metrics, rollouts = calm.files(), calm.metrics(), calm.query(TRAINED)
    with copied(recorded) as struck_folder:
        struck = trained(struck_folder, MOMENTS)
        assert struck.struck == [moment.name for moment in MOMENTS]
        # The figures name the first update that differs; the files decide.
        assert struck.metrics() == metrics
        assert struck.query(TRAINED) == rollouts
        assert struck.query(LEASED_TWICE)[0][0] > 0
        assert len(metrics) == UPDATES + 1
        assert struck.files() == files
        for folder in list_checkpoints(struck.paths.checkpoints):
            load_checkpoint(folder)
        assert check(struck.paths, struck.config, full=True) == []
