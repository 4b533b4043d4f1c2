"""`dartrl up` as a process: steered while a part of it hangs, drained, killed with all it has, and again.

Environments, engine and trainer are simulated; the actors, the record and the files are the real ones.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from actors.board import LIVING, ActorState
from dart.core.errors import NotRunningError
from dart.core.run_directory import RunPaths
from dart.run.control_protocol import ControlOutcome, Pause, Ping, RestartActor, Resume, Scale
from dart.run.control_socket import connect, request
from dart.telemetry.board_gauges import Gauge
from tests.fault.daemons import CONFIG, DEADLINE_S, Daemon, await_taken
from tests.fault.terminals import InTheForeground
from tests.patience import slowness

ANY_TIME = ("run_stands", "sidecar_up")
"""Events that come when they come."""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path)
    yield daemon
    daemon.end()


@pytest.fixture
def foreground(tmp_path: Path) -> Iterator[InTheForeground]:
    daemon = InTheForeground(tmp_path)
    yield daemon
    daemon.end()


@pytest.mark.long
@pytest.mark.slow
def test_it_is_steered_while_a_part_of_it_hangs_and_drains_when_its_terminal_is_closed(
    foreground: InTheForeground,
) -> None:
    daemon = foreground
    with pytest.raises(NotRunningError):
        request(daemon.paths.root.parent / "other", Ping())
    second = daemon.run("up", str(daemon.config))
    assert f"is taken by process {daemon.process.pid}" in second.communicate(timeout=DEADLINE_S)[1]
    assert second.returncode == 73

    hung = daemon.row("env-001")
    os.kill(hung.pid, signal.SIGSTOP)
    assert daemon.ask(RestartActor(name="env-001", wait_ms=0)).outcome is ControlOutcome.UNDER_WAY
    assert daemon.ask(Ping(wait_ms=30_000)).outcome is ControlOutcome.DONE
    assert daemon.ask(Scale(environments=4, wait_ms=60_000)).text == "4 environments"
    daemon.wait_until(lambda: daemon.row("env-001").pid not in (0, hung.pid), "a new env-001")
    assert daemon.ask(Scale(rollouts=2, wait_ms=60_000)).text == "2 rollouts"
    daemon.wait_until(lambda: daemon.row("rollout-1").ready, "a second engine")
    daemon.wait_until(lambda: daemon.row("weight_sync").gauges[Gauge.ENGINES] == 2, "two engines asked")
    assert daemon.ask(Scale(rollouts=1, wait_ms=60_000)).text == "1 rollouts"
    daemon.plays_on()

    os.kill(daemon.row("root").pid, signal.SIGSTOP)
    assert daemon.ask(RestartActor(name="store", wait_ms=100)).outcome is not ControlOutcome.DONE
    assert daemon.ask(Pause(wait_ms=30_000)).outcome is ControlOutcome.DONE
    assert daemon.ask(Resume(wait_ms=30_000)).outcome is ControlOutcome.DONE
    os.kill(daemon.row("root").pid, signal.SIGCONT)
    for frame in (b"\xc1", os.urandom(1000), b"\x81\xa2do\xa4root"):
        with connect(daemon.paths.control, DEADLINE_S) as connection:
            connection.send(frame)
            connection.recv(1 << 16)
    daemon.plays_on()

    daemon.process.send_signal(signal.SIGHUP)
    daemon.await_logged("configuration_read")
    daemon.plays_on()
    daemon.terminal.close()
    code, log = daemon.ended()

    assert code == 0
    assert [line["event"] for line in log if line["event"] not in ANY_TIME] == [
        "daemon_started",
        "run_is_up",
        "configuration_read",
        "drain_began",
        "daemon_ended",
    ]
    assert log[-1]["is_drained"] is True
    assert log[-1]["stopped_by"] == signal.SIGHUP
    assert not daemon.paths.control.exists()
    assert daemon.processes() == []
    daemon.assert_sound()


@pytest.mark.slow
def test_a_copy_of_a_run_that_runs_goes_on_beside_it(daemon: Daemon, tmp_path: Path) -> None:
    daemon.plays_on()
    drain = daemon.run("drain")
    _, said = drain.communicate(timeout=DEADLINE_S * slowness())
    assert drain.returncode == 0, said
    beside = tmp_path / "beside"
    beside.mkdir()
    subprocess.run(["cp", "-a", daemon.paths.root, beside / "run"], check=True)
    copy = Daemon(beside)
    try:
        for one in (copy, daemon):
            assert one.ask(Resume(wait_ms=30_000)).outcome is ControlOutcome.DONE
            one.plays_on()
        copy.process.send_signal(signal.SIGTERM)
        assert copy.ended()[0] == 0
        copy.assert_sound()
    finally:
        copy.end()
    daemon.plays_on()
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.ended()[0] == 0
    daemon.assert_sound()


class EndlessUpdates(Daemon):
    """A run whose first update does not end, and which plays on meanwhile."""

    def start(self) -> None:
        config = self.config.read_text().replace("update_base_s = 0.05", "update_base_s = 600.0")
        self.config.write_text(config.replace("step_cap = 30", "step_cap = 30, staleness = 100"))
        super().start()


@pytest.mark.long
def test_a_drain_stops_the_environments_beside_an_update_that_does_not_end(tmp_path: Path) -> None:
    daemon = EndlessUpdates(tmp_path, "supervision.trainer.shutdown_s = 15.0")
    try:
        daemon.plays_on(20)
        daemon.process.send_signal(signal.SIGTERM)
        daemon.wait_until(lambda: daemon.row("environment_pool").state not in LIVING, "the environments' end")
        assert daemon.row("trainer").state is ActorState.STOPPING

        code, log = daemon.ended()
        assert code == 0
        (ended,) = (line for line in log if line["event"] == "daemon_ended")
        assert ended["is_drained"] is True
        daemon.assert_sound()
    finally:
        daemon.end()


@pytest.mark.long
@pytest.mark.slow
def test_after_everything_was_killed_at_once_the_next_start_says_so_and_goes_on(daemon: Daemon) -> None:
    daemon.plays_on()
    daemon.ask(Pause(wait_ms=30_000))
    for process in daemon.processes():
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended with another that was killed before
            process.kill()
    assert daemon.ended()[0] == -signal.SIGKILL
    played = daemon.trajectories()

    daemon.start()
    assert daemon.trajectories() == played, "it was paused, and still is"
    daemon.ask(Resume(wait_ms=30_000))
    daemon.plays_on()
    daemon.process.send_signal(signal.SIGTERM)
    daemon.await_taken()
    daemon.process.send_signal(signal.SIGTERM)
    code, log = daemon.ended()

    (found,) = (line for line in log if line["event"] == "run_taken_up")
    assert found["killed"] >= 8
    assert found["is_held"] is True
    assert found["trajectories"] == played
    assert code in (0, 143), "a drain may be over before the second signal comes"
    assert daemon.processes() == []
    daemon.assert_sound()


STANDS_UNTIL_TOLD = """
import sys, time
from pathlib import Path
from dart.cli.main import main
from dart.run import app, daemon

run, where = Path(sys.argv[-1]), sys.argv.pop(1)
module, name = {"check": (app, "_conclude"), "report": (daemon, "publish")}[where]
goes_on = getattr(module, name)

def when_told(*arguments):
    (run / "has_come").touch()
    while not (run / "go_on").exists():
        time.sleep(0.02)
    return goes_on(*arguments)

setattr(module, name, when_told)
main()
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("where", "signals", "code"), [("report", 1, 0), ("check", 2, 143)])
def test_a_signal_while_a_run_is_checked_or_its_report_written_waits_for_that_and_a_second_does_not(
    tmp_path: Path, where: str, signals: int, code: int
) -> None:
    run, config = tmp_path / "run", tmp_path / "config.toml"
    config.write_text(CONFIG.replace("updates = 100000", "updates = 1"))
    command = [sys.executable, "-c", STANDS_UNTIL_TOLD, where, "up", str(config), "--run-dir", str(run)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        give_up = time.monotonic() + DEADLINE_S
        while not (run / "has_come").exists():
            assert process.poll() is None
            assert time.monotonic() < give_up
            time.sleep(0.05)
        for number in range(signals):
            process.send_signal(signal.SIGTERM)
            await_taken(RunPaths(run), process, number + 1)
        if signals == 1:
            (run / "go_on").touch()
        assert process.wait(timeout=DEADLINE_S) == code
    assert (run / "report.json").exists() is (code == 0)
