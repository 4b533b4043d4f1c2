"""`dartrl down` says what the run has left for its next start, and signals no process of anything else."""

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from actors.process import start_ticks
from dart.cli.exit_codes import ExitCode
from dart.cli.main import app
from dart.core import run_directory
from dart.core.run_directory import LockHolder
from dart.environments.osworld import give_back as give_back_module
from tests.fake_pool import TOKEN, FakePool, of_osworld, remember, served
from tests.recorded_run import record_run


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that runs every run, and ends when it is asked to."""
    monkeypatch.setattr(run_directory, "lock_holder", lambda root: LockHolder(pid=7, ticks=0))
    monkeypatch.setattr("dart.cli.down._end_process", lambda root, found, wait_s, *, now: wait_s > 1.0)
    monkeypatch.setattr("dart.cli.down._is_released", lambda root, found: True)


@pytest.mark.usefixtures("ended")
def test_it_says_from_where_the_next_start_continues(tmp_path: Path) -> None:
    record_run(tmp_path / "run")
    result = CliRunner().invoke(app, ["down", "--run-dir", str(tmp_path / "run")])
    assert result.exit_code == 0
    said = " ".join(result.output.split())
    assert "has ended the next start: " in said
    assert "continues from version 1 with 7 trajectories; plays 1 interrupted rollout again" in said


@pytest.mark.usefixtures("ended")
def test_a_run_that_ended_before_it_had_a_record_leaves_nothing_to_say(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    result = CliRunner().invoke(app, ["down", "--run-dir", str(tmp_path / "run")])
    assert result.exit_code == 0
    assert result.output.endswith("has ended\n")


@pytest.mark.usefixtures("ended")
def test_a_run_that_drains_for_longer_can_be_waited_for_as_the_message_says(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    runner, at_run = CliRunner(), ["--run-dir", str(tmp_path / "run")]
    early = runner.invoke(app, ["down", "--wait", "1", *at_run])
    assert early.exit_code == ExitCode.TEMPORARY
    assert "still runs the run" in early.output
    assert "after 1 s; wait for longer with `dartrl down --wait SECONDS`" in " ".join(early.output.split())
    assert runner.invoke(app, ["down", "--wait", "1800", *at_run]).exit_code == 0


@contextmanager
def held_lock(root: Path, text: str) -> Iterator[None]:
    """A lock with this text, which some process holds while the block lasts."""
    root.mkdir()
    with (root / "lock").open("w") as lock:
        lock.write(text)
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize("text", ["4194305 1\n", "4194305\n"], ids=["", "of an earlier version"])
def test_a_run_that_holds_its_lock_and_whose_process_is_not_shown_here_has_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(run_directory, "ORPHANS_END_S", 0.0)

    with held_lock(tmp_path / "run", text):
        ran = CliRunner().invoke(app, ["down", "--run-dir", str(tmp_path / "run")])

    assert ran.exit_code == ExitCode.UNKNOWN, ran.output
    assert "process 4194305 is not on this machine or in this container" in " ".join(ran.output.split())
    assert "has ended\n" not in ran.output


@pytest.mark.parametrize("options", [[], ["--now"]])
def test_a_process_that_only_has_the_pid_of_a_run_in_another_container_gets_no_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setattr(run_directory, "ORPHANS_END_S", 0.0)
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            with held_lock(tmp_path / "run", f"{other.pid} 1\n"):
                ran = CliRunner().invoke(app, ["down", *options, "--run-dir", str(tmp_path / "run")])
            assert ran.exit_code == ExitCode.UNKNOWN, ran.output
            assert other.poll() is None
        finally:
            other.kill()
            assert other.wait() == -9


OTHER_USER = 65534

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")


@AS_ROOT
@pytest.mark.parametrize("options", [[], ["--now"]])
def test_a_lock_of_another_user_that_names_a_process_of_a_third_one_ends_nothing(
    tmp_path: Path, options: list[str]
) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            with held_lock(tmp_path / "run", f"{other.pid} {start_ticks(other.pid)}\n"):
                os.chown(tmp_path / "run", OTHER_USER, OTHER_USER)
                ran = CliRunner().invoke(app, ["down", *options, "--run-dir", str(tmp_path / "run")])
            assert ran.exit_code == ExitCode.UNKNOWN, ran.output
            assert f"its lock names process {other.pid} of user 0" in " ".join(ran.output.split())
            assert other.poll() is None
        finally:
            other.kill()
            assert other.wait() == -9


@AS_ROOT
@pytest.mark.parametrize("command", ["down", "doctor"])
def test_no_program_is_started_that_the_configuration_of_another_users_run_names(
    tmp_path: Path, command: str
) -> None:
    started = tmp_path / "started"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {started}\n")
    program.chmod(0o755)
    paths = record_run(tmp_path / "run")
    config = of_osworld("provider=docker", f"docker.program={program}")
    paths.config.write_text(config.to_toml())
    CliRunner().invoke(app, [command, "--run-dir", str(paths.root)])
    assert started.exists(), "in a run of one's own it is"
    started.unlink()
    os.chown(paths.root, OTHER_USER, OTHER_USER)
    assert CliRunner().invoke(app, [command, "--run-dir", str(paths.root)]).exit_code != 0
    assert not started.exists()


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakePool]:
    """A server with a machine that a run has left which was killed."""
    monkeypatch.setenv("DARTRL_POOL_TOKEN", TOKEN)
    monkeypatch.setattr(give_back_module, "GIVE_BACK_S", give_back_module.STOP_RETRY_S)
    pool = FakePool()
    pool.running = {"emulator-7": 1}
    paths = record_run(tmp_path / "run")
    remember(paths.root, emulator_ids=["emulator-7"])
    with served(pool) as address:
        paths.config.write_text(of_osworld("provider=pool", f"pool.server={address}").to_toml())
        yield pool


def test_machines_that_a_killed_run_has_left_are_given_back_although_it_is_not_running(
    tmp_path: Path, pool: FakePool
) -> None:
    at_run = ["--run-dir", str(tmp_path / "run")]
    given = CliRunner().invoke(app, ["down", *at_run])
    assert given.exit_code == 0, given.output
    assert pool.running == {}
    assert "gave back 1 machine\n" in given.output
    assert CliRunner().invoke(app, ["down", *at_run]).exit_code == ExitCode.NOT_RUNNING


def test_a_machine_that_cannot_be_stopped_is_named_with_the_command_that_tries_again(
    tmp_path: Path, pool: FakePool
) -> None:
    pool.refused_stops = float("inf")
    refused = CliRunner().invoke(app, ["down", "--run-dir", str(tmp_path / "run")])
    assert refused.exit_code == ExitCode.TEMPORARY
    said = " ".join(refused.output.split())
    assert "may still run: machines emulator-7 of http://127.0.0.1:" in said
    assert f"status 503: busy; try again with `dartrl down --run-dir {tmp_path / 'run'}`" in said


@pytest.mark.usefixtures("ended")
def test_a_run_that_ends_and_leaves_a_machine_gives_it_back(tmp_path: Path, pool: FakePool) -> None:
    result = CliRunner().invoke(app, ["down", "--now", "--run-dir", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    assert pool.running == {}
