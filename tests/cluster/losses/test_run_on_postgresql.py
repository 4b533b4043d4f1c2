"""A run with its record on PostgreSQL: commands of its machine, and a server that is killed under it."""

import json
import os
import re
import signal
import urllib.request
from pathlib import Path

from dart.testing.postgresql_server import PostgresqlServer
from tests.cluster.test_run_from_elsewhere import running_at
from tests.event_files import scalars
from tests.fault.daemons import DEADLINE_S, Daemon
from tests.patience import slowness

OK, DEGRADED, UNKNOWN = 0, 1, 4
MORE = """
telemetry.load_every_s = 0.5
tracking.writers = ["tensorboard"]
"""


def output_of(daemon: Daemon, *words: str, codes: tuple[int, ...] = (OK,)) -> str:
    """What a command prints, which writes no errors."""
    command = daemon.run(*words)
    output, errors = command.communicate(timeout=DEADLINE_S * slowness())
    assert command.returncode in codes, (words, errors)
    assert errors == "", words
    return str(output)


def versions_in(daemon: Daemon) -> dict[int, float]:
    """When each version was committed."""
    with daemon.reader() as record:
        return {one.version: one.created_unix_s for one in record.versions()}


def test_a_run_is_shown_on_its_machine_and_trains_on_after_its_server_was_killed(
    postgresql: PostgresqlServer, database: str, tmp_path: Path
) -> None:
    with running_at(database, tmp_path / "here", MORE) as daemon:
        daemon.plays_on()
        shows_itself(daemon)
        trains_on_after_its_server_was_killed(daemon, postgresql)


def shows_itself(daemon: Daemon) -> None:
    """What every command of its machine says of a run that works, and its page."""
    before = daemon.row("env-000")
    os.kill(before.pid, signal.SIGKILL)
    daemon.wait_until(lambda: daemon.row("env-000").incarnation > before.incarnation, "another env-000")
    daemon.wait_until(lambda: "SIGKILL" in output_of(daemon, "why", "env-000"), "the end of env-000")

    status = output_of(daemon, "status", codes=(OK, DEGRADED))
    assert f"pid {daemon.process.pid}" in status
    tree = output_of(daemon, "tree")
    assert "environment_pool" in tree
    assert "inspection" in tree
    assert "trainer" in output_of(daemon, "top")
    assert "env-000" in output_of(daemon, "events", "--kind", "child_terminated")
    assert "dartrl_updates_total" in output_of(daemon, "metrics")
    assert "simulated task" in output_of(daemon, "tasks", "list")
    assert json.loads(output_of(daemon, "trajectories", "list", "-o", "json"))
    assert "the data is sound" in output_of(daemon, "doctor", "--data")

    found = re.search(r"http://127\.0\.0\.1:\d+/", status)
    assert found, status
    with urllib.request.urlopen(f"{found[0]}tree", timeout=DEADLINE_S) as answer:
        assert b"environment_pool" in answer.read()


def trains_on_after_its_server_was_killed(daemon: Daemon, postgresql: PostgresqlServer) -> None:
    daemon.wait_until(lambda: max(versions_in(daemon)) > 0, "an update")
    before = versions_in(daemon)
    postgresql.kill()
    says_that_its_record_is_away(daemon)
    postgresql.start()
    daemon.wait_until(lambda: max(versions_in(daemon)) > max(before) + 1, "updates after it")
    assert "has ended" in output_of(daemon, "down")
    exit_code, log = daemon.ended()
    assert exit_code == OK
    assert log[-1]["is_drained"] is True
    assert "record_away" in [line["event"] for line in log]

    after = versions_in(daemon)
    assert list(after) == list(range(len(after)))
    assert after.items() >= before.items()
    daemon.assert_sound()
    figures = scalars(daemon.paths.tracking / "tensorboard", "staleness/mean")
    assert list(figures) == list(after)[1:]


def says_that_its_record_is_away(daemon: Daemon) -> None:
    command = daemon.run("status")
    output, errors = command.communicate(timeout=DEADLINE_S * slowness())
    assert command.returncode == UNKNOWN, errors
    assert "env-000" in output
    assert "The run waits for its record, and goes on by itself" in errors
