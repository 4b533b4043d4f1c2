"""The figures of a run's updates reach TensorBoard once each, whoever is killed or started again."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dart.store.reader import StoreReader
from tests.event_files import scalars
from tests.fault.daemons import Daemon

pytestmark = pytest.mark.slow

MORE = """
telemetry.load_every_s = 0.5
tracking.writers = ["tensorboard"]
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path, MORE)
    yield daemon
    daemon.end()


def written(daemon: Daemon) -> int:
    """The newest version that is noted as written; 0 before the first."""
    position = daemon.paths.tracking / "position.json"
    versions = json.loads(position.read_text())["versions"] if position.exists() else {}
    return int(versions.get("tensorboard", 0))


@pytest.mark.long
def test_the_last_updates_are_written_after_the_tree_was_killed(daemon: Daemon) -> None:
    daemon.wait_until(lambda: written(daemon) > 0, "a first update")
    os.kill(daemon.row("root").pid, signal.SIGSTOP)
    daemon.process.send_signal(signal.SIGTERM)
    daemon.await_taken()
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.ended()[0] == 128 + signal.SIGTERM

    with StoreReader(daemon.paths.store) as store:
        assert written(daemon) == store.versions()[-1].version


@pytest.mark.long
def test_every_update_is_written_once_whatever_ends(daemon: Daemon) -> None:
    daemon.wait_until(lambda: written(daemon) > 0, "a first update")
    writer = json.loads((daemon.paths.root / "tracking.json").read_text())["pid"]
    os.kill(writer, signal.SIGKILL)
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.ended()[0] == 0

    daemon.start()
    daemon.plays_on()
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.ended()[0] == 0

    with StoreReader(daemon.paths.store) as store:
        made = {one.version: one for one in store.versions() if one.version}
    told = scalars(daemon.paths.tracking / "tensorboard", "staleness/mean")
    assert told == {
        version: (pytest.approx(one.created_unix_s, abs=0.001), pytest.approx(one.metrics["staleness_mean"]))
        for version, one in made.items()
    }
    assert scalars(daemon.paths.tracking / "tensorboard", "utilisation/environments").keys() == made.keys()
    assert daemon.processes() == []
