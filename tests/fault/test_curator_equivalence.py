"""A curator that is killed at named moments decides as one that is not.

Store, curator and kills are real; one actor plays and trains by a script. What differs by design: a lease
that was written and never reached its environment is revoked, and the rollout gets a lease with a new number.
"""

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.system import ActorSystem
from dart.config.config import load_config
from dart.core.run_directory import RunPaths
from dart.run.tree import root_of, single_children
from dart.store.reader import StoreReader
from dart.store.store import Store
from supervision.child_spec import ChildSpec
from tests.fault.curated import CURATOR_PLACES, PLAYER
from tests.fault.kill_moments import Moment, Plan
from tests.patience import slowness

UPDATES = 20
RUN_DEADLINE_S = 120.0
TASKS = [f"simulated/{number}" for number in range(3)]

DECIDED = {
    "groups": "SELECT task_id, seed, rollouts_wanted, step_cap, policy_version, probes_length, state, "
    "drop_reason, batch_id FROM groups ORDER BY group_id",
    "rollouts": "SELECT group_id, state, drop_reason, batch_id FROM rollouts ORDER BY rollout_id",
    "batches": "SELECT state, version FROM batches ORDER BY batch_id",
    "decisions": "SELECT task_id, kind, before, after, reason, policy_version FROM decisions "
    "ORDER BY decision_id",
}
"""All that a curator decides; attempts, fences and times are left out."""

MOMENTS = [Moment(name=name) for name in CURATOR_PLACES]


@contextlib.contextmanager
def folder_of_a_run() -> Iterator[Path]:
    """With a path that is short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="curated-", dir="/tmp"))
    try:
        (folder / "mail").mkdir()
        yield folder
    finally:
        shutil.rmtree(folder)


def decided(folder: Path, kills: Sequence[Moment]) -> dict[str, list[Any]]:
    """What a run decided until its last update; the curator is killed at each of these moments."""
    paths = RunPaths(folder / "run")
    for one in paths.folders:
        one.mkdir(parents=True, exist_ok=True)
    config = load_config(
        None,
        [
            f"run.dir='{paths.root}'",
            f"tasks.train={TASKS}",
            "environments.kind='simulated'",
            "rollout.engine='simulated'",
            "rollout.count=1",
            f"training.updates={UPDATES}",
            "training.groups_per_update=2",
            "training.learner='simulated'",
            "curation.staleness=4",
            "curation.rollouts_per_group=4",
            "curation.step_cap=12",
            "curation.rollout_number.enabled=true",
            "curation.trajectory_length.enabled=true",
            "curation.poll_s=0.02",
            "curation.max_attempts=100",
            "evaluation.before=false",
            "evaluation.after=false",
            "supervision.root.max_restarts=1000",
            "supervision.curator.backoff.initial_s=0.01",
            "supervision.curator.backoff.max_s=0.01",
            "supervision.curator.hang_deadline_s=600.0",
            "supervision.curator.start_deadline_s=600.0",
        ],
    )
    paths.config.write_text(config.to_toml())
    with Store(paths.store) as record:
        record.add_version()
    Plan.make(folder, kills)
    args = {
        "config": config.model_dump(mode="json"),
        "store": str(paths.store),
        "plan": str(folder),
        "training_ends_boot_s": 1e12,
    }
    store, curator, _, trainer = single_children(config, args)
    engine = ChildSpec(id="rollout-0", actor="tests.fault.curated:ShownEngine", independent=True)
    children = (
        store,
        replace(curator, actor="tests.fault.curated:KilledCurator"),
        engine,
        replace(trainer, id=PLAYER, actor="tests.fault.curated:Player", preload=()),
    )
    system = ActorSystem(paths.root, folder / "mail", root_of(config, children), prints_reports=False)
    with system:
        has_ended = system.wait(RUN_DEADLINE_S * slowness())
        assert has_ended, f"not all updates were made; killed so far: {Plan.struck(folder)}"
    assert Plan.struck(folder) == [moment.name for moment in kills]
    with StoreReader(paths.store) as reader:
        assert reader.integrity(config.curation.staleness) == ()
        assert reader.conservation().holds
    with closing(sqlite3.connect(f"file:{paths.store}?mode=ro", uri=True)) as connection:
        return {name: connection.execute(sql).fetchall() for name, sql in DECIDED.items()}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_curator_killed_at_every_named_moment_decides_as_one_that_was_not() -> None:
    assert len(MOMENTS) >= 20
    with folder_of_a_run() as folder:
        calm = decided(folder, [])
    with folder_of_a_run() as folder:
        struck = decided(folder, MOMENTS)
    assert calm["decisions"], "no quota and no length limit changed: this run shows too little"
    assert any(group[7] for group in calm["groups"]), "no group was dropped: this run shows too little"
    for name in DECIDED:
        assert struck[name] == calm[name], name
