"""The trainer is killed again and again while it writes a version beside its next update.

Environments, engine and trainer are simulated; actors, record, checkpoints and kills are real.
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dart.store.checkpoints import checkpoint_name, load_checkpoint
from dart.telemetry.load_meter import LOAD
from tests.fault import daemons
from tests.fault.daemons import Daemon
from tests.patience import slowness

KILLS = 5
WRITES_FOR_S = 0.4
"""As long as an update takes, about: whenever the trainer is killed, one of the two is half done."""


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    slow = f"update_base_s = 0.05, update_each_s = 0.02, checkpoint_s = {WRITES_FOR_S}"
    config = daemons.CONFIG.replace("update_base_s = 0.05", slow)
    config = config.replace("curation = { ", "curation = { staleness = 4, poll_s = 0.02, ")
    monkeypatch.setattr(daemons, "CONFIG", config)
    daemon = Daemon(tmp_path, "telemetry.load_every_s = 0.5\n")
    yield daemon
    daemon.end()


def newest(daemon: Daemon) -> int:
    with daemon.reader() as reader:
        version = reader.latest_version()
    assert version is not None
    return version.version


def trains_on(daemon: Daemon, more: int) -> int:
    """Until there are so many more versions; returns the newest."""
    goal = newest(daemon) + more
    daemon.wait_until(lambda: newest(daemon) >= goal, f"version {goal}")
    return newest(daemon)


@pytest.mark.long
@pytest.mark.slow
def test_whenever_it_is_killed_each_version_of_the_record_is_whole_and_no_batch_is_trained_twice(
    daemon: Daemon,
) -> None:
    moments = random.Random(0)
    trains_on(daemon, 2)
    for _ in range(KILLS):
        time.sleep(moments.uniform(0.0, 2 * WRITES_FOR_S) * slowness())
        killed = daemon.row("trainer").pid
        os.kill(killed, signal.SIGKILL)
        with daemon.reader() as reader:
            committed = reader.latest_version()
        assert committed is not None
        folder = daemon.paths.checkpoints / checkpoint_name(committed.version)
        assert load_checkpoint(folder).state.version == committed.version
        daemon.wait_until(lambda killed=killed: daemon.row("trainer").pid not in (0, killed), "a new trainer")
        trains_on(daemon, 1)
    trains_on(daemon, 2)
    daemon.process.send_signal(signal.SIGTERM)
    code, _ = daemon.ended()
    assert code == 0
    daemon.assert_sound()
    with daemon.reader() as reader:
        books = reader.conservation()
        versions = [version.version for version in reader.versions()]
    assert books.holds
    assert versions == list(range(len(versions)))


@pytest.mark.long
@pytest.mark.slow
def test_versions_are_written_while_updates_are_computed(daemon: Daemon) -> None:
    trains_on(daemon, 6)
    daemon.process.send_signal(signal.SIGTERM)
    daemon.ended()
    with daemon.reader() as reader:
        load = max(
            (event.data for event in reader.find_events(subject="trainer", kinds=(LOAD,))),
            key=lambda data: float(data["wall_s"]),
        )
    assert load["writing_s"] + load["update_s"] + load["starved_s"] > 1.1 * load["wall_s"], load
