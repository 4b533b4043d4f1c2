"""What benchmarks read of a run when it has ended."""

import sqlite3
from contextlib import closing
from pathlib import Path

from benchmarks import runs
from dart.store.store import Store
from dart.testing.trajectories import trajectory_for


def trained(path: Path) -> None:
    """A record of one update on one group of two."""
    with Store(path) as store:
        store.add_version()
        group_id = store.open_group("click-test", 1, 2, 5, 0)
        for number in range(2):
            lease = store.lease_rollout(group_id, f"env-{number:03d}", 1e12)
            store.finish_rollout(lease.rollout_id, lease.fence, trajectory_for(lease, float(number)))
        batch = store.lease_batch([group_id], 1e12)
        store.commit_update(batch.batch_id, batch.fence, 1, {"trajectories": 2.0})


def test_a_sound_record_has_nothing_lost_or_doubled(tmp_path: Path) -> None:
    trained(tmp_path / "store.db")

    found = runs.audit(tmp_path / "store.db", staleness_bound=0)

    assert (found["lost"], found["doubled"], found["violations"]) == (0, 0, [])
    assert found["trained"] == found["trained_by_updates"] == 2


def test_a_damaged_record_is_told_in_words(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    trained(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE trajectories SET steps_sha256 = ''")
        connection.commit()

    assert any("steps" in text for text in runs.audit(path)["violations"])


def test_trajectories_that_entered_two_updates_are_doubled(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    trained(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("""UPDATE versions SET metrics = '{"trajectories": 3.0}' WHERE version = 1""")
        connection.commit()

    assert runs.audit(path)["doubled"] == 1
