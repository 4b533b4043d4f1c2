"""A whole run that is taken up with a damaged checkpoint, in another place, and without its record."""

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dart.cli.exit_codes import ExitCode
from dart.core.run_directory import RunPaths
from dart.store.checkpoints import list_checkpoints
from dart.store.reader import StoreReader
from tests.fault.daemons import DEADLINE_S, Daemon


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Daemon]:
    run = Daemon(tmp_path)
    yield run
    run.end()


@pytest.mark.long
@pytest.mark.slow
def test_a_damaged_run_goes_on_or_is_refused_and_loses_no_checkpoint(run: Daemon, tmp_path: Path) -> None:
    await_versions(run, 3)
    stop(run)
    assert modes_of_folders(run.paths.root) == {0o700}

    newest = list_checkpoints(run.paths.checkpoints)[-1]
    flip_a_bit(newest / "weights.json")
    code, told = dartrl(run, "doctor", "--data")
    assert (code, f"checkpoint {newest}: weights.json is corrupt" in told) == (ExitCode.FAILED, True), told
    assert "--resume (or `dartrl up`) continues from the newest whole checkpoint" in told

    run.start()  # what the finding says
    await_versions(run, int(newest.name[1:]) + 1)
    _, told = dartrl(run, "status", "--json")
    (notice,) = json.loads(told)["notices"]
    aside = newest.with_name(f"{newest.name}.damaged")
    assert str(aside) in notice
    shutil.rmtree(aside)  # what the notice says
    _, told = dartrl(run, "status", "--json")
    assert json.loads(told)["notices"] == []
    stop(run)
    assert dartrl(run, "doctor", "--data", "--full")[0] == ExitCode.OK

    moved = run.paths.root.rename(tmp_path / "moved")
    run.paths = RunPaths(moved)
    run.start()
    await_versions(run, version_of(run) + 1)
    stop(run)

    run.paths.store.rename(tmp_path / "store.db")
    before = [folder.name for folder in list_checkpoints(run.paths.checkpoints)]
    for words in (("up", str(run.config)), ("train", "--resume")):
        code, told = dartrl(run, *words)
        assert (code, "store.db does not exist" in told) == (ExitCode.IO_ERROR, True), told
    assert [folder.name for folder in list_checkpoints(run.paths.checkpoints)] == before
    assert not run.paths.store.exists()


def await_versions(run: Daemon, version: int) -> None:
    run.wait_until(lambda: version_of(run) >= version, f"version {version}")


def version_of(run: Daemon) -> int:
    with StoreReader(run.paths.store) as store:
        newest = store.latest_version()
    return -1 if newest is None else newest.version


def stop(run: Daemon) -> None:
    run.process.send_signal(signal.SIGTERM)
    code, log = run.ended()
    assert code == 0, log


def dartrl(run: Daemon, *words: str) -> tuple[int, str]:
    process = run.run(*words)
    output, errors = process.communicate(timeout=DEADLINE_S)
    return process.returncode, " ".join((output + errors).split())


def flip_a_bit(file: Path) -> None:
    whole = bytearray(file.read_bytes())
    whole[-1] ^= 1
    file.write_bytes(whole)


def modes_of_folders(root: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in (root, *root.rglob("*")) if path.is_dir()}
