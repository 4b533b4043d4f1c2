"""What benchmarks read of a run when it has ended."""

import os
import signal
import sqlite3
import subprocess
import sys
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


RUN = """
import signal, sys, time
signal.signal(signal.SIGINT, lambda *_: sys.exit(print("drained", flush=True)))
print("trains", flush=True)
time.sleep(60)
"""
PROGRAM = """
import sys, time
from pathlib import Path
from benchmarks.runs import training
folder = Path(sys.argv[1])
with training(folder / "job.toml", folder / "run", {}, repository=folder) as run:
    while not run.last_words() and not run.is_over:
        time.sleep(0.01)
    print("begun", flush=True)
    time.sleep(60)
"""


def test_a_program_that_gets_a_sigterm_drains_its_run_first(tmp_path: Path) -> None:
    (tmp_path / "dart").mkdir()
    (tmp_path / "dart" / "__init__.py").touch()
    (tmp_path / "dart" / "__main__.py").write_text(RUN)  # in the place of `python -m dart`
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "begun\n"
        program.send_signal(signal.SIGTERM)
    assert program.returncode == 128 + signal.SIGTERM
    assert (tmp_path / "run.out").read_text() == "trains\ndrained\n"


def test_a_program_that_handles_sigterm_itself_keeps_its_handler() -> None:
    taken: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: taken.append(number))
    try:
        with runs.sigterm_as_exit():
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert taken == [signal.SIGTERM]
