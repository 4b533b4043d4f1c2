"""A run that is begun, and one that is taken up whose record or newest checkpoint is not what it was."""

import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs
from typer.testing import CliRunner

from dart.cli.main import app as dartrl
from dart.config.config import Config, load_config
from dart.config.layers import literal
from dart.core.errors import DiskError, RunDirectoryError, UnavailableError
from dart.core.record_address import RecordAddress
from dart.core.records import Evaluation, EvaluationPhase, EvaluationPlay, Event, StoredResult
from dart.core.run_directory import RunPaths, claimed
from dart.core.types import Outcome
from dart.inspect.time_budget import TimeBudget
from dart.policy.adapter_files import fingerprint
from dart.policy.protocols import UnsupportedCheckpoint
from dart.preflight.requirements import missing_policy
from dart.run import app, run_record
from dart.run.run_record import (
    RunHistory,
    begin_record,
    look_back,
    prepare_record,
    refuse_without_record,
)
from dart.store.blobs import FolderBlobs
from dart.store.checkpoints import STATE_FILE, Checkpoint, CheckpointState, load_checkpoint, write_checkpoint
from dart.store.errors import StoreBusy, StoreUnavailable
from dart.store.integrity import check
from dart.store.reader import StoreReader
from dart.store.run_blobs import local_blobs
from dart.store.store import Store
from dart.store.write_ahead_log import (
    FRAME_HEADER_BYTES,
    HEADER_BYTES,
    copies_of_damaged_logs,
    keep_damaged_log,
    log_of,
)
from dart.telemetry.events import POOLS_SIZED, WORK_HELD
from dart.testing.trajectories import step_at, trajectory_for
from dart.training.learner_factory import learner_at
from dart.training.reference_policy import BASE_SHA256
from tests.recorded_run import record_run

WEIGHTS = "weights.json"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(
        None,
        [
            f"run.dir={literal(str(tmp_path / 'run'))}",
            f"training.policy={literal(str(tmp_path / 'base'))}",
            "training.learner='simulated'",
            "rollout.engine='simulated'",
        ],
    )


@pytest.fixture
def paths(config: Config) -> RunPaths:
    """A run of three updates with a checkpoint of each."""
    paths = RunPaths(config.run.dir)
    for folder in paths.folders:
        folder.mkdir(parents=True)
    begin_record(config, paths)
    paths.config.write_text(config.to_toml())
    for version in (1, 2, 3):
        commit(paths, version)
    return paths


def commit(paths: RunPaths, version: int) -> None:
    written(paths, version)
    with Store(paths.store, create=False) as store:
        group_id = store.open_group("click-test", 7, 2, 10, version - 1)
        for reward in (0.0, 1.0):
            lease = store.lease_rollout(group_id, "env-000", 60.0)
            played = replace(trajectory_for(lease, reward), steps=(step_at(version - 1),))
            store.finish_rollout(lease.rollout_id, 1, played)
        batch = store.lease_batch([group_id], 60.0)
        store.commit_update(batch.batch_id, 1, version, {})


def written(paths: RunPaths, version: int) -> Path:
    state = CheckpointState(version=version, learner={"progress": {}})
    return write_checkpoint(
        paths.checkpoints, state, lambda folder: (folder / WEIGHTS).write_text(f"of {version}") and None
    )


def folders(paths: RunPaths) -> list[str]:
    return sorted(path.name for path in paths.checkpoints.iterdir())


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def newest_version(paths: RunPaths) -> int:
    with StoreReader(paths.store) as store:
        newest = store.latest_version()
    assert newest is not None
    return newest.version


# ---- a record that is absent, empty or older ----


def absent(paths: RunPaths) -> None:
    paths.store.unlink()


def empty(paths: RunPaths) -> None:
    paths.store.write_bytes(b"")
    Path(f"{paths.store}-wal").write_bytes(b"what a killed writer left")


def without_schema(paths: RunPaths) -> None:
    paths.store.unlink()
    with sqlite3.connect(paths.store) as connection:
        connection.execute("CREATE TABLE other (x)")
    connection.close()


@pytest.mark.parametrize(
    ("damage", "word"), [(absent, "does not exist"), (empty, "is empty"), (without_schema, "has no schema")]
)
def test_a_run_without_its_record_is_refused_and_nothing_of_it_is_changed(
    config: Config, paths: RunPaths, damage: object, word: str
) -> None:
    assert callable(damage)
    damage(paths)
    before = content(paths.root)
    with pytest.raises(DiskError, match=rf"store\.db {word}.*nothing was started or changed"):
        refuse_without_record(config, paths)
    with pytest.raises(DiskError):
        prepare_record(config, paths)
    assert content(paths.root) == before


@pytest.mark.parametrize(
    ("before", "now", "remedy"),
    [
        ("", "postgresql://db.example/empty", "leave run.record empty"),
        ("postgresql://db.example/run_7", "", "name that address in run.record"),
    ],
)
def test_a_run_that_is_to_go_on_with_an_empty_record_in_another_place_says_where_its_record_is(
    config: Config, paths: RunPaths, monkeypatch: pytest.MonkeyPatch, before: str, now: str, remedy: str
) -> None:
    def refuse(address: RecordAddress) -> None:
        raise StoreUnavailable(f"store {address} has no schema")

    monkeypatch.setattr(run_record, "require_record", refuse)
    paths.config.write_text(f'run.record = "{before}"')
    run = config.run.model_copy(update={"record": now})
    with pytest.raises(StoreUnavailable, match=f"record of this run was {before or paths.store}: {remedy}$"):
        refuse_without_record(config.model_copy(update={"run": run}), paths)


@pytest.mark.parametrize("version", ["0007", "9999"])
def test_a_run_whose_record_cannot_be_migrated_is_refused_and_nothing_of_it_is_changed(
    config: Config, paths: RunPaths, version: str
) -> None:
    with sqlite3.connect(paths.store) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (version,))
    connection.close()
    before = content(paths.root)
    with pytest.raises(RunDirectoryError, match=rf"store\.db is at schema '{version}'"):
        refuse_without_record(config, paths)
    with pytest.raises(RunDirectoryError):
        prepare_record(config, paths)
    after = content(paths.root)
    after.pop("store.db-shm")  # SQLite's own, of any process that reads
    assert after.pop("store.db-wal") == b""
    assert after == before


def test_the_remedies_for_a_run_without_its_record_are_true(
    config: Config, paths: RunPaths, tmp_path: Path
) -> None:
    copy = paths.store.rename(tmp_path / "copy.db")
    with pytest.raises(DiskError, match=r"put a copy of it back") as refused:
        refuse_without_record(config, paths)

    policy = str(refused.value).rpartition("training.policy=")[2].strip()
    other = config.model_copy(update={"training": config.training.model_copy(update={"policy": policy})})
    assert load_checkpoint(Path(policy)).state.version == 3
    assert list(missing_policy(other)) == []

    copy.rename(paths.store)
    refuse_without_record(config, paths)
    assert prepare_record(config, paths) == 3


def test_a_run_is_not_continued_with_another_adapter_and_nothing_of_it_is_changed(
    config: Config, paths: RunPaths
) -> None:
    placement = {"lora_rank": 8, "lora_alpha": 32.0}
    state = CheckpointState(version=4, learner={"config": {"placement": placement}})
    newest = write_checkpoint(paths.checkpoints, state, lambda _: None)
    before = content(paths.checkpoints)
    with pytest.raises(UnavailableError, match=r"rank = 8 .* set them back, or start a new run"):
        refuse_without_record(config, paths)
    assert content(paths.checkpoints) == before

    lora = config.training.lora.model_copy(update={"rank": 8})
    same = config.model_copy(update={"training": config.training.model_copy(update={"lora": lora})})
    refuse_without_record(same, paths)
    (newest / "config.json").write_text('{"model_type": "gui_policy"}')  # a small policy has no adapter
    refuse_without_record(config, paths)
    (newest / STATE_FILE).write_text("damaged")  # `prepare_record` continues from an older one
    refuse_without_record(config, paths)


def test_a_record_is_never_created_where_one_must_be(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="does not exist"):
        Store(tmp_path / "store.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_an_older_record_is_refused_and_no_checkpoint_is_touched(config: Config, paths: RunPaths) -> None:
    older = paths.store.read_bytes()
    for version in (4, 5):
        commit(paths, version)
    paths.store.write_bytes(older)
    flip_a_bit(paths.checkpoints / "v000003" / WEIGHTS)
    before = content(paths.checkpoints)
    with pytest.raises(DiskError, match=r"v000005.*the record ends at version 3") as refused:
        prepare_record(config, paths)
    assert content(paths.checkpoints) == before

    assert f"move v000005 out of {paths.checkpoints}" in str(refused.value)
    shutil.move(paths.checkpoints / "v000005", paths.root.parent / "elsewhere")
    assert prepare_record(config, paths) == 3


def test_a_checkpoint_without_a_commit_is_renamed_aside_and_stays_until_the_next_commit(
    config: Config, paths: RunPaths
) -> None:
    from dart.store.checkpoints import remove_uncommitted, set_aside_uncommitted

    for _ in range(2):
        written(paths, 4)
        assert learner_at(config, 3, paths.checkpoints).version == 3
        set_aside_uncommitted(paths.checkpoints, committed=3)
    kept = ["v000001", "v000002", "v000003", "v000004.uncommitted", "v000004.uncommitted-2"]
    assert folders(paths) == kept
    assert (paths.checkpoints / "v000004.uncommitted" / WEIGHTS).read_text() == "of 4"

    remove_uncommitted(paths.checkpoints, committed=3)
    assert folders(paths) == kept
    remove_uncommitted(paths.checkpoints, committed=4)
    assert folders(paths) == ["v000001", "v000002", "v000003"]


def test_versions_are_compared_as_numbers(tmp_path: Path, config: Config) -> None:
    from dart.store.checkpoints import set_aside_uncommitted

    paths = RunPaths(tmp_path)
    for version in (999_999, 1_000_000):
        written(paths, version)
    set_aside_uncommitted(paths.checkpoints, committed=999_999)
    assert folders(paths) == ["v1000000.uncommitted", "v999999"]


# ---- beginning ----


def test_a_start_that_is_killed_before_its_configuration_is_written_can_be_begun_again(
    config: Config,
) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        claimed(config.run.dir, resume=False, config_toml="", make_record=killed_after(config)),
    ):
        pass
    paths = RunPaths(config.run.dir)
    assert paths.store.exists()
    assert not paths.config.exists()
    begun = load_config(None, ["training.policy='another'", f"run.dir={literal(str(config.run.dir))}"])
    with claimed(
        config.run.dir, resume=False, config_toml="", make_record=lambda paths: begin_record(begun, paths)
    ):
        with StoreReader(paths.store) as store:
            (base,) = store.versions()
        assert (base.version, base.metrics) == (0, {})


def killed_after(config: Config) -> "object":
    def make(paths: RunPaths) -> None:
        begin_record(config, paths)
        raise KeyboardInterrupt

    return make


KILLED_IN_A_TRANSACTION = """
import os, signal, sqlite3, sys
record = sqlite3.connect(sys.argv[1], isolation_level=None)
record.execute("PRAGMA cache_size = 1")
record.execute("BEGIN IMMEDIATE")
record.execute("CREATE TABLE steps (content)")
record.execute("INSERT INTO steps VALUES (zeroblob(100000))")
os.kill(os.getpid(), signal.SIGKILL)
"""
"""SQLite has written pages already, because they do not fit into its cache. Its journal can undo that."""


def test_a_run_begins_where_a_start_was_killed_while_sqlite_wrote_the_first_pages(config: Config) -> None:
    config.run.dir.mkdir()
    record = config.run.dir / "store.db"
    subprocess.run([sys.executable, "-c", KILLED_IN_A_TRANSACTION, record], check=False)
    assert record.stat().st_size
    journal = record.with_name("store.db-journal")
    assert journal.read_bytes()[:1] == b"\xd9", "the first byte of a journal that is to be played back"

    with claimed(
        config.run.dir, resume=False, config_toml="", make_record=lambda paths: begin_record(config, paths)
    ) as directory:
        assert newest_version(directory.paths) == 0
        assert not journal.exists()


def test_a_database_of_another_program_that_was_killed_in_a_transaction_keeps_what_it_had(
    config: Config,
) -> None:
    config.run.dir.mkdir()
    record = config.run.dir / "store.db"
    with sqlite3.connect(record) as connection:
        connection.execute("CREATE TABLE sales (amount)")
    connection.close()
    before = record.read_bytes()
    subprocess.run([sys.executable, "-c", KILLED_IN_A_TRANSACTION, record], check=False)
    assert record.read_bytes() != before

    with pytest.raises(RunDirectoryError, match=r"store\.db that is the database of another program"):
        begin_record(config, RunPaths(config.run.dir))
    assert record.read_bytes() == before


def test_a_record_of_work_whose_configuration_is_gone_is_not_begun_over(
    config: Config, paths: RunPaths
) -> None:
    before = content(paths.root)
    with pytest.raises(RunDirectoryError, match=r"holds a record of 4 versions and no config\.toml"):
        begin_record(config, paths)
    assert content(paths.root) == before


def test_a_database_of_another_program_is_not_taken_for_an_interrupted_start(
    config: Config, tmp_path: Path
) -> None:
    config.run.dir.mkdir()
    with sqlite3.connect(config.run.dir / "store.db") as connection:
        connection.execute("CREATE TABLE sales (amount)")
        connection.execute("INSERT INTO sales VALUES (7)")
    connection.close()
    before = (config.run.dir / "store.db").read_bytes()
    with (
        pytest.raises(RunDirectoryError, match=r"store\.db.*--run-dir"),
        claimed(
            config.run.dir,
            resume=False,
            config_toml="",
            make_record=lambda paths: begin_record(config, paths),
        ),
    ):
        pass
    assert (config.run.dir / "store.db").read_bytes() == before


# ---- a newest checkpoint that is damaged ----


def flip_a_bit(file: Path) -> None:
    whole = bytearray(file.read_bytes())
    whole[-1] ^= 1
    file.write_bytes(whole)


def test_a_damaged_newest_checkpoint_is_made_anew_from_the_newest_whole_one(
    config: Config, paths: RunPaths
) -> None:
    flip_a_bit(paths.checkpoints / "v000003" / WEIGHTS)
    flip_a_bit(paths.checkpoints / "v000002" / WEIGHTS)
    assert prepare_record(config, paths) == 3
    made = load_checkpoint(paths.checkpoints / "v000003")
    assert made.state.version == 3
    assert (made.folder / WEIGHTS).read_text() == "of 1"
    assert (paths.checkpoints / "v000003.damaged" / WEIGHTS).exists()
    with StoreReader(paths.store) as store:
        (event,) = store.find_events()
        newest = store.latest_version()
    assert newest is not None
    assert learner_at(config, newest.version, paths.checkpoints).version == 3
    assert event.kind == "checkpoint_restored"
    assert (event.data["version"], event.data["from_version"]) == (3, 1)
    assert "weights.json is corrupt" in str(event.data["damage"])
    assert prepare_record(config, paths) == 3, "it is made anew once"


def test_what_an_evaluation_measured_with_lost_weights_is_measured_again(
    config: Config, paths: RunPaths
) -> None:
    after = Evaluation(
        phase=EvaluationPhase.AFTER, policy_version=3, task_id="click-test", seed=1, reward=1.0
    )
    before = replace(after, phase=EvaluationPhase.BEFORE, policy_version=0)
    of_older = replace(after, policy_version=2)
    play = EvaluationPlay(
        environment="env-000",
        instruction="click",
        outcome=Outcome.TERMINATED,
        num_steps=1,
        steps_sha256="0" * 64,
        started_unix_s=0.0,
        duration_s=1.0,
    )
    with Store(paths.store, create=False) as store:
        store.record_evaluation(before)
        store.record_evaluation(of_older)
        store.record_evaluation(after, play)
    flip_a_bit(paths.checkpoints / "v000003" / WEIGHTS)

    assert prepare_record(config, paths) == 3

    with Store(paths.store, create=False) as store:
        assert store.evaluations() == (before, of_older)
        assert store.record_evaluation(after, play) is StoredResult.ACCEPTED


@pytest.mark.parametrize("refused", ["dart.store.store.Store.record_event", "dart.run.run_record._copy_as"])
def test_a_restoration_that_a_full_disk_interrupts_is_recorded_once_and_completed_at_the_next_start(
    config: Config, paths: RunPaths, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    flip_a_bit(paths.checkpoints / "v000003" / WEIGHTS)

    def refuse(*_: object) -> None:
        raise StoreBusy("the disk is full")

    with monkeypatch.context() as full:
        full.setattr(refused, refuse)
        with pytest.raises(StoreBusy):
            prepare_record(config, paths)

    assert prepare_record(config, paths) == 3

    with StoreReader(paths.store) as store:
        (event,) = store.find_events(kinds=("checkpoint_restored",))
    assert "weights.json is corrupt" in str(event.data["damage"])
    assert (paths.root / str(event.data["damaged_folder"]) / WEIGHTS).exists()
    assert folders(paths) == ["v000001", "v000002", "v000003", "v000003.damaged"]
    assert (paths.checkpoints / "v000003" / WEIGHTS).read_text() == "of 2"


def test_a_start_reads_the_newest_checkpoint_once(
    config: Config, paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have a hundred gigabytes."""
    read: list[str] = []

    def load(folder: Path) -> Checkpoint:
        read.append(folder.name)
        return load_checkpoint(folder)

    monkeypatch.setattr("dart.store.integrity.load_checkpoint", load)
    assert prepare_record(config, paths) == 3
    assert read == ["v000003"]


def test_a_newest_checkpoint_that_is_gone_is_made_anew_too(config: Config, paths: RunPaths) -> None:
    shutil.rmtree(paths.checkpoints / "v000003")
    assert prepare_record(config, paths) == 3
    assert (paths.checkpoints / "v000003" / WEIGHTS).read_text() == "of 2"


def test_a_run_without_any_whole_checkpoint_is_refused_and_nothing_is_renamed(
    config: Config, paths: RunPaths
) -> None:
    for version in (1, 2, 3):
        flip_a_bit(paths.checkpoints / f"v00000{version}" / WEIGHTS)
    with pytest.raises(DiskError, match=r"v000003: weights\.json is corrupt.*restore the folder from a copy"):
        prepare_record(config, paths)
    assert folders(paths) == ["v000001", "v000002", "v000003"]


# ---- a damaged log ----


def test_a_run_with_a_damaged_log_goes_on_without_what_is_behind_the_damage(
    config: Config, paths: RunPaths
) -> None:
    leave_a_damaged_log(paths, events=10)
    log_before = log_of(paths.store).read_bytes()

    assert prepare_record(config, paths) == 3

    with StoreReader(paths.store) as store:
        *kept, cut = store.find_events()
    assert 0 < len(kept) < 10
    assert cut.kind == "log_cut"
    assert str(cut.data["damage"]).endswith(f"loses {10 - len(kept)} transactions from there on")
    assert (paths.root / str(cut.data["copy"])).read_bytes() == log_before
    assert check(paths, config) == []
    assert prepare_record(config, paths) == 3, "it is cut once"


def test_a_damaged_log_that_another_command_met_first_is_kept_and_recorded_at_the_next_start(
    config: Config, paths: RunPaths
) -> None:
    leave_a_damaged_log(paths, events=10)
    log_before = log_of(paths.store).read_bytes()
    paths.lock.touch()
    ended = CliRunner().invoke(dartrl, ["pool", "drop", "3", "--run-dir", str(paths.root)])
    assert "no demonstration" in ended.stderr
    assert not log_of(paths.store).exists(), "SQLite has deleted it"

    assert prepare_record(config, paths) == 3

    cut = newest_event(paths, "log_cut")
    assert "transactions from there on" in str(cut.data["damage"])
    assert (paths.root / str(cut.data["copy"])).read_bytes() == log_before


def test_a_damaged_log_is_recorded_although_the_start_is_refused_for_newer_checkpoints(
    config: Config, paths: RunPaths
) -> None:
    leave_a_damaged_log(paths, events=10)
    for version in (4, 5):
        written(paths, version)
    for _ in range(2):
        with pytest.raises(DiskError, match="v000005"):
            prepare_record(config, paths)
    shutil.rmtree(paths.checkpoints / "v000005")

    assert prepare_record(config, paths) == 3

    with StoreReader(paths.store) as store:
        assert len(store.find_events(kinds=("log_cut",))) == 1


def test_a_log_that_is_damaged_at_the_end_of_a_run_is_kept_for_the_next_start(
    config: Config, paths: RunPaths
) -> None:
    leave_a_damaged_log(paths, events=10)
    result = app._conclude(paths, config, TimeBudget(paths, config, reserve_s=0.0), 3)
    assert "--resume keeps a copy of the log" in result.failure

    assert prepare_record(config, paths) == 3

    assert "transactions from there on" in str(newest_event(paths, "log_cut").data["damage"])


def test_a_second_damage_of_the_log_is_recorded_after_the_copy_of_the_first_was_removed(
    config: Config, paths: RunPaths
) -> None:
    for _ in range(2):
        leave_a_damaged_log(paths, events=10)
        assert prepare_record(config, paths) == 3
        copy = paths.root / str(newest_event(paths, "log_cut").data["copy"])
        copy.unlink()

    with StoreReader(paths.store) as store:
        assert len(store.find_events(kinds=("log_cut",))) == 2


def test_a_damaged_log_is_copied_once(paths: RunPaths) -> None:
    leave_a_damaged_log(paths, events=10)
    for _ in range(2):
        keep_damaged_log(paths.store)
    (copy,) = copies_of_damaged_logs(paths.store)
    assert copy.name == "store.db-wal.damaged"
    assert not list(paths.root.glob("*.copying"))

    leave_a_damaged_log(paths, events=5)
    keep_damaged_log(paths.store)
    assert len(copies_of_damaged_logs(paths.store)) == 2


def newest_event(paths: RunPaths, kind: str) -> Event:
    with StoreReader(paths.store) as store:
        event = store.newest_event(kind)
    assert event is not None
    return event


def test_a_damaged_log_is_named_with_what_can_be_done(config: Config, paths: RunPaths) -> None:
    leave_a_damaged_log(paths, events=10)

    (named, *_) = check(paths, config)

    assert "frame" in named.what
    assert "--resume keeps a copy of the log" in named.remedy


def leave_a_damaged_log(paths: RunPaths, events: int) -> None:
    """As a writer leaves it that was killed, and a disk that changed a bit in the middle."""
    aside = paths.root / "aside.db"
    with Store(paths.store) as store:
        for number in range(events):
            store.record_event("restart", f"env-{number:03}")
        shutil.copy(paths.store, aside)
        log = bytearray(log_of(paths.store).read_bytes())
    frame_bytes = FRAME_HEADER_BYTES + 4096
    frames = (len(log) - HEADER_BYTES) // frame_bytes
    log[HEADER_BYTES + frames // 2 * frame_bytes + 100] ^= 1
    aside.rename(paths.store)
    log_of(paths.store).write_bytes(log)


# ---- lost screenshots and steps ----


def test_a_run_continues_without_a_lost_screenshot_and_records_it(config: Config, paths: RunPaths) -> None:
    screenshot = live_screenshot(paths)
    screenshot.write_bytes(b"")  # as a power failure leaves a file that was not synced
    with capture_logs() as logged:
        assert prepare_record(config, paths, structlog.get_logger()) == 3

    with StoreReader(paths.store) as store:
        (event,) = store.find_events()
    assert event.kind == "screenshots_lost"
    assert event.data["screenshots"] == 1
    assert str(event.data["detail"]).startswith(f"screenshot {screenshot}: has other bytes")
    assert [line["event"] for line in logged] == ["screenshots_lost"]
    assert [finding.costs_groups_only for finding in check(paths, config)] == [True]


def test_a_run_does_not_continue_without_the_steps_of_a_live_group(config: Config, paths: RunPaths) -> None:
    live_screenshot(paths)
    with sqlite3.connect(paths.store) as connection:
        query = "SELECT steps_sha256 FROM trajectories ORDER BY rollout_id DESC LIMIT 1"
        ((sha256,),) = connection.execute(query)
    connection.close()
    steps = local_blobs(paths.root).steps
    steps.delete(sha256)

    with pytest.raises(DiskError, match=rf"packed steps {steps.place(sha256)} is missing"):
        prepare_record(config, paths)


def test_a_run_that_ends_with_a_lost_screenshot_names_it_and_does_not_fail(
    config: Config, paths: RunPaths
) -> None:
    screenshot = live_screenshot(paths)
    screenshot.unlink()

    result = app._conclude(paths, config, TimeBudget(paths, config, reserve_s=0.0), 3)

    assert (result.violations, result.failure) == ((), "")
    assert result.lost_screenshots == (f"screenshot {screenshot}: is missing",)


def live_screenshot(paths: RunPaths) -> Path:
    """The screenshot of a group that can be trained."""
    blobs = FolderBlobs(paths.blobs)
    seen = replace(step_at(3), screenshot_sha256=blobs.put(b"of a live group"))
    with Store(paths.store, create=False) as store:
        lease = store.lease_rollout(store.open_group("click-test", 7, 2, 10, 3), "env-000", 60.0)
        store.finish_rollout(lease.rollout_id, 1, replace(trajectory_for(lease, 1.0), steps=(seen,)))
    return blobs.path(seen.screenshot_sha256)


# ---- a run that is moved or copied ----


def test_a_copied_run_goes_on_from_its_own_checkpoints_and_never_looks_into_the_original(
    config: Config, paths: RunPaths, tmp_path: Path
) -> None:
    copied = RunPaths(shutil.copytree(paths.root, tmp_path / "copy"))
    shutil.rmtree(paths.root)
    assert prepare_record(config, copied) == 3
    with StoreReader(copied.store) as store:
        newest = store.latest_version()
    assert newest is not None
    assert learner_at(config, newest.version, copied.checkpoints).version == 3


def a_policy(folder: Path, weights: str) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text(weights)
    return folder


def with_policy(config: Config, folder: Path) -> Config:
    training = config.training.model_copy(update={"policy": folder})
    return config.model_copy(update={"training": training})


def test_a_run_is_not_continued_with_another_base_policy(
    tmp_path: Path, config: Config, paths: RunPaths
) -> None:
    a_policy(tmp_path / "base", "first")
    other = with_policy(config, a_policy(tmp_path / "other", "second"))
    before = paths.config.read_text()

    with (
        pytest.raises(RunDirectoryError, match=f"began with the policy {tmp_path / 'base'}.*set.*back"),
        claimed(
            paths.root,
            resume=True,
            config_toml=other.to_toml(),
            make_record=partial(refuse_without_record, other),
        ),
    ):
        pass

    assert paths.config.read_text() == before


@pytest.mark.parametrize("is_moved", [False, True], ids=["copied", "moved"])
def test_a_run_is_continued_with_the_same_base_policy_in_another_folder(
    tmp_path: Path, config: Config, paths: RunPaths, is_moved: bool
) -> None:
    base, elsewhere = a_policy(tmp_path / "base", "first"), tmp_path / "elsewhere"
    shutil.copytree(base, elsewhere)
    if is_moved:
        shutil.rmtree(base)

    refuse_without_record(with_policy(config, elsewhere), paths)


def test_a_run_with_a_kl_term_is_not_continued_when_its_base_policy_was_replaced_in_place(
    tmp_path: Path, config: Config, paths: RunPaths
) -> None:
    base = a_policy(tmp_path / "base", "first")
    state = CheckpointState(version=4, learner={BASE_SHA256: fingerprint(base)})
    write_checkpoint(paths.checkpoints, state, lambda _: None)
    refuse_without_record(config, paths)
    restored = shutil.copytree(base, tmp_path / "restored")
    (base / "model.safetensors").write_text("second")

    with pytest.raises(UnsupportedCheckpoint, match=r"kl_beta.*Name a folder with the earlier files"):
        refuse_without_record(config, paths)

    refuse_without_record(with_policy(config, restored), paths)
    without_kl = config.training.model_copy(update={"kl_beta": 0.0})
    refuse_without_record(config.model_copy(update={"training": without_kl}), paths)


def test_a_run_directory_that_was_moved_is_continued_with_its_base_policy(
    tmp_path: Path, config: Config, paths: RunPaths
) -> None:
    a_policy(tmp_path / "base", "first")
    paths.root.rename(tmp_path / "moved")

    refuse_without_record(config, RunPaths(tmp_path / "moved"))


def test_an_exploration_may_ask_another_policy(tmp_path: Path, config: Config, paths: RunPaths) -> None:
    a_policy(tmp_path / "base", "first")
    (paths.logs / "exploration.jsonl").touch()

    refuse_without_record(with_policy(config, a_policy(tmp_path / "other", "second")), paths)


# ---- what a start finds, and what it records ----


def test_the_last_start_of_a_run_is_found_as_it_was_left(tmp_path: Path) -> None:
    """In the recorded run, one rollout is still played, and one of nine actors waits for its restart."""
    paths = record_run(tmp_path / "run")
    with Store(paths.store) as store:
        playing, ready = (store.open_group("click-test", seed, 2, 10, 1) for seed in (1, 2))
        for reward in (0.0, 1.0):
            lease = store.lease_rollout(playing, "env-000", 1e12)
            store.park_rollout(lease.rollout_id, lease.fence, [step_at(1)], "drained", 3)
            lease = store.lease_rollout(ready, "env-000", 1e12)
            store.finish_rollout(lease.rollout_id, lease.fence, trajectory_for(lease, reward, versions=[1]))
        store.lease_batch([ready], 1e12)
        store.record_event(WORK_HELD, "curator", {"is_held": True, "alarm": ""})

    assert look_back(paths) == RunHistory(
        version=1, trajectories=9, leased=1, parked=2, is_batch_open=True, is_held=True, killed=8
    )


def test_the_sizes_of_the_pools_are_recorded_once_and_when_a_start_has_others(
    config: Config, paths: RunPaths
) -> None:
    larger = config.model_copy(update={"environments": config.environments.model_copy(update={"count": 3})})

    for one in (config, config, larger):
        app.take_over_record(one, paths)

    with StoreReader(paths.store) as store:
        sizes = [event.data["environments"] for event in store.find_events(kinds=[POOLS_SIZED])]
    assert sizes in ([config.environments.count, 3], [3, config.environments.count])
