"""Checkpoints in object storage: complete or absent, published once, loaded by version anywhere."""

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dart.config.config import Config
from dart.core.errors import DiskError, RunDirectoryError
from dart.core.run_directory import RunPaths
from dart.run.child_task import in_fresh_process
from dart.run.run_record import begin_record, prepare_record, refuse_without_record
from dart.run.shared_storage import OWNER, PrefixOwner
from dart.store.blobs import STEPS, FolderBlobs
from dart.store.checkpoints import (
    CheckpointExists,
    CheckpointState,
    CorruptCheckpoint,
    load_checkpoint,
    write_checkpoint,
)
from dart.store.errors import BlobMissing, BlobsBusy, StoreUnavailable
from dart.store.integrity import RecordDamaged
from dart.store.object_storage import ObjectStorage
from dart.store.published_checkpoints import (
    MANIFEST,
    PREFIX,
    UNCOMMITTED,
    PublishedCheckpoints,
)
from dart.store.reader import StoreReader
from dart.store.run_blobs import blobs_of
from dart.store.store import Store
from dart.store.transfers import TRANSFERS
from dart.telemetry.events import CHECKPOINT_RESTORED
from dart.testing.trajectories import trajectory_for
from tests.patience import slowness

WEIGHTS, OPTIMIZER = "model.safetensors", "optimizer.pt"


class Machine:
    """A machine with a run directory of its own, and the checkpoints that all machines share."""

    def __init__(self, root: Path, address: str) -> None:
        self.paths = RunPaths(root)
        self.checkpoints = PublishedCheckpoints(address, self.paths.checkpoints, root / "cache" / "policies")

    def write(self, version: int, content: str = "weights") -> Path:
        def write_files(folder: Path) -> None:
            (folder / WEIGHTS).write_text(f"{content} of {version}")
            (folder / OPTIMIZER).write_text("moments")

        return write_checkpoint(
            self.paths.checkpoints, CheckpointState(version=version, learner={}), write_files
        )

    def publish(self, version: int, content: str = "weights") -> None:
        self.checkpoints.publish(version, self.write(version, content))


@pytest.fixture
def machine(storage_address: str, tmp_path: Path) -> Callable[[str], Machine]:
    return lambda name: Machine(tmp_path / name, storage_address)


def test_an_engine_with_an_empty_folder_loads_a_version(machine: Callable[[str], Machine]) -> None:
    machine("trainer").publish(7)
    folder = machine("engines").checkpoints.policy(7)
    assert (folder / WEIGHTS).read_text() == "weights of 7"
    assert not (folder / OPTIMIZER).exists(), "only the trainer reads it"
    assert load_checkpoint(folder, but=(OPTIMIZER,)).state.version == 7


def test_another_trainer_resumes_from_the_whole_checkpoint(machine: Callable[[str], Machine]) -> None:
    machine("trainer").publish(7)
    other = machine("other trainer")
    other.checkpoints.fetch(7)
    assert load_checkpoint(other.paths.checkpoints / "v000007").state.version == 7
    other.checkpoints.fetch(7)


def test_a_trainer_resumes_from_the_published_version_and_not_from_its_own(
    machine: Callable[[str], Machine],
) -> None:
    first = machine("first")
    first.write(7, "weights that were not committed")
    machine("second").publish(7)
    first.checkpoints.fetch(7)
    folder = first.paths.checkpoints / "v000007"
    assert (folder / WEIGHTS).read_text() == "weights of 7"
    assert load_checkpoint(folder).state.version == 7


def test_a_trainer_resumes_from_its_own_version_when_none_is_published(
    machine: Callable[[str], Machine],
) -> None:
    trainer = machine("trainer")
    folder = trainer.write(7)
    trainer.checkpoints.fetch(7)
    assert (folder / WEIGHTS).read_text() == "weights of 7"


def no_answer(storage: ObjectStorage, key: str) -> bytes:
    raise BlobsBusy(f"{storage.place(key)}: the object storage does not answer")


def test_a_trainer_whose_storage_is_away_resumes_from_a_version_that_it_published_or_fetched(
    machine: Callable[[str], Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, other = machine("trainer"), machine("other trainer")
    trainer.publish(7)
    other.checkpoints.fetch(7)
    monkeypatch.setattr(ObjectStorage, "get", no_answer)
    for one in (trainer, other):
        one.checkpoints.fetch(7)
        assert (one.paths.checkpoints / "v000007" / WEIGHTS).read_text() == "weights of 7"


def test_a_trainer_whose_storage_is_away_does_not_resume_from_a_version_that_may_not_be_the_published_one(
    machine: Callable[[str], Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = machine("trainer")
    trainer.publish(6)
    trainer.write(7, "weights that were not committed")
    machine("second").publish(7)
    monkeypatch.setattr(ObjectStorage, "get", no_answer)
    with pytest.raises(BlobsBusy):
        trainer.checkpoints.fetch(7)


def test_a_version_is_published_once_and_the_second_trainer_changes_nothing(
    machine: Callable[[str], Machine],
) -> None:
    machine("first").publish(7)
    with pytest.raises(
        CheckpointExists, match=r"v000007/manifest\.json exists: another trainer has published"
    ):
        machine("second").publish(7, "other weights")
    folder = machine("engines").checkpoints.policy(7)
    assert (folder / WEIGHTS).read_text() == "weights of 7"


def test_a_version_that_was_published_before_its_answer_got_lost_is_published(
    machine: Callable[[str], Machine],
) -> None:
    first = machine("first")
    folder = first.write(7)
    first.checkpoints.publish(7, folder)
    first.checkpoints.publish(7, folder)
    assert first.checkpoints.versions() == [7]
    assert machine("engines").checkpoints.policy(7).is_dir()


def test_files_of_an_attempt_that_was_interrupted_go_when_the_version_is_published(
    machine: Callable[[str], Machine],
) -> None:
    trainer = machine("trainer")
    storage = trainer.checkpoints._storage
    storage.put(f"{PREFIX}/v000001/interrupted/{WEIGHTS}", b"half of them")
    trainer.publish(1)
    assert not [entry.key for entry in storage.entries(PREFIX) if "interrupted" in entry.key]
    assert machine("engines").checkpoints.policy(1).is_dir()


def test_a_version_without_its_manifest_is_none(
    machine: Callable[[str], Machine], storage_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = machine("trainer")
    put = ObjectStorage.put

    def refuse_manifest(
        storage: ObjectStorage, key: str, content: bytes, *, only_create: bool = False
    ) -> None:
        assert MANIFEST not in key, "killed before the manifest"
        put(storage, key, content, only_create=only_create)

    folder = trainer.write(7)
    with monkeypatch.context() as patched:
        patched.setattr(ObjectStorage, "put", refuse_manifest)
        with pytest.raises(AssertionError):
            trainer.checkpoints.publish(7, folder)
    assert trainer.checkpoints.versions() == []
    with pytest.raises(
        CorruptCheckpoint, match=r"manifest\.json is corrupt: expected an object, got nothing"
    ):
        machine("engines").checkpoints.policy(7)
    assert trainer.checkpoints.set_aside_uncommitted(6) == []
    assert ObjectStorage(storage_address).entries(PREFIX) == []


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"weights of 8", "expected sha256"),
        (b"weights", "expected 12 bytes, got 7 bytes"),
        (b"", "expected 12 bytes, got 0 bytes"),
    ],
)
def test_other_bytes_in_the_storage_are_refused(
    machine: Callable[[str], Machine], storage_address: str, content: bytes, found: str
) -> None:
    machine("trainer").publish(7)
    storage = ObjectStorage(storage_address)
    (key,) = [entry.key for entry in storage.entries(PREFIX) if entry.key.endswith(WEIGHTS)]
    storage.put(key, content)
    engines = machine("engines")
    with pytest.raises(CorruptCheckpoint, match=f"{WEIGHTS} is corrupt: {found}"):
        engines.checkpoints.policy(7)
    assert not (engines.paths.root / "cache" / "policies" / "v000007").exists()


def test_an_uncommitted_version_goes_and_old_ones_but_what_engines_serve(
    machine: Callable[[str], Machine],
) -> None:
    trainer = machine("trainer")
    for version in range(6):
        trainer.publish(version)
    assert trainer.checkpoints.set_aside_uncommitted(4) == [5]
    assert trainer.checkpoints.versions() == [0, 1, 2, 3, 4]
    assert trainer.checkpoints.prune(2, protect=frozenset({1})) == [2]
    assert trainer.checkpoints.versions() == [0, 1, 3, 4]
    assert machine("engines").checkpoints.policy(1).is_dir()


def test_a_machine_keeps_the_versions_that_its_engines_use_and_no_others(
    machine: Callable[[str], Machine],
) -> None:
    trainer = machine("trainer")
    for version in (1, 2, 3):
        trainer.publish(version)
    engines = machine("engines")
    serving = subprocess.Popen(
        [sys.executable, "-c", HOLDER, trainer.checkpoints._storage.address, str(engines.paths.root)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert serving.stdout is not None
    assert serving.stdout.readline() == "holds 1\n"
    here = engines.paths.root / "cache" / "policies"
    for version in (2, 3):
        engines.checkpoints.policy(version)
        assert versions_in(here) == ["v000001", f"v{version:06d}"]
    serving.send_signal(signal.SIGKILL)
    serving.wait()
    serving.stdout.close()
    engines.checkpoints.policy(2)
    assert versions_in(here) == ["v000002"]


def versions_in(folder: Path) -> list[str]:
    """The versions of which a cache has a folder; what is half made begins with a dot."""
    return sorted(path.name.split("-")[0] for path in folder.iterdir() if path.is_dir())


def test_a_machine_serves_no_version_that_another_run_left_in_its_folder(
    machine: Callable[[str], Machine], tmp_path: Path
) -> None:
    machine("trainer").publish(1)
    machine("engines").checkpoints.policy(1)
    address = (tmp_path / "another run").as_uri()
    Machine(tmp_path / "another trainer", address).publish(1, "other weights")
    here = Machine(tmp_path / "engines", address).checkpoints.policy(1)
    assert (here / WEIGHTS).read_text() == "other weights of 1"


def test_a_download_that_was_killed_or_failed_leaves_nothing(machine: Callable[[str], Machine]) -> None:
    trainer, engines = machine("trainer"), machine("engines")
    trainer.publish(1)
    trainer.publish(2)
    half = engines.paths.root / "cache" / "policies" / ".v000041-attempt.tmp"
    half.mkdir(parents=True)
    (half / WEIGHTS).write_text("half")
    storage = trainer.checkpoints._storage
    for entry in storage.entries(f"{PREFIX}/v000001"):
        if entry.key.endswith(WEIGHTS):
            storage.delete(entry.key)
    with pytest.raises(CorruptCheckpoint):
        engines.checkpoints.policy(1)
    assert [path.name for path in half.parent.iterdir() if path.is_dir()] == [half.name]
    engines.checkpoints.policy(2)
    assert versions_in(half.parent) == ["v000002"]


HOLDER = """
import sys, time
from pathlib import Path
from dart.store.published_checkpoints import PublishedCheckpoints

root = Path(sys.argv[2])
PublishedCheckpoints(sys.argv[1], root / "checkpoints", root / "cache" / "policies").policy(1)
print("holds 1", flush=True)
time.sleep(60)
"""


PUBLISHER = """
import sys
from pathlib import Path
from dart.store.published_checkpoints import PublishedCheckpoints

folder = Path(sys.argv[2])
print("publishes", flush=True)
PublishedCheckpoints(sys.argv[1], folder.parent, folder.parent).publish(1, folder)
"""


def test_a_trainer_that_is_killed_while_it_publishes_leaves_no_part_of_a_version(
    machine: Callable[[str], Machine],
) -> None:
    for number, after_s in enumerate((0.0, 0.02, 0.05, 0.1)):
        trainer = machine(f"trainer-{number}")
        folder = trainer.write(1)
        for part in range(40):
            (folder / f"part-{part}").write_bytes(bytes([part]) * 1000)
        command = [sys.executable, "-c", PUBLISHER, trainer.checkpoints._storage.address, str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as publisher:
            assert publisher.stdout is not None
            assert publisher.stdout.readline() == "publishes\n"
            time.sleep(after_s)
            publisher.kill()
        if trainer.checkpoints.versions():
            found = machine(f"engines-{number}").checkpoints.policy(1)
            assert len(list(found.glob("part-*"))) == 40
        trainer.checkpoints.set_aside_uncommitted(0)
        assert trainer.checkpoints.versions() == []


# ---- a run ----


def config_of(root: Path, blobs: str, policy: Path) -> Config:
    return Config.model_validate(
        {"run": {"dir": str(root), "blobs": blobs}, "training": {"policy": str(policy)}}
    )


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / WEIGHTS).write_text("base weights")
    return folder


def begun(root: Path, blobs: str, policy: Path) -> tuple[Config, RunPaths]:
    config, paths = config_of(root, blobs, policy), RunPaths(root)
    for folder in paths.folders:
        folder.mkdir(parents=True)
    begin_record(config, paths)
    paths.config.write_text(config.to_toml())
    return config, paths


def test_a_prefix_belongs_to_one_run(s3: str, policy: Path, tmp_path: Path) -> None:
    begun(tmp_path / "first", s3, policy)
    with pytest.raises(RunDirectoryError, match=r"holds the blobs of the run .*first: name an empty prefix"):
        begun(tmp_path / "second", s3, policy)


def test_a_version_that_was_set_aside_keeps_its_files_until_it_is_published_anew(
    machine: Callable[[str], Machine],
) -> None:
    trainer = machine("trainer")
    trainer.publish(1)
    storage = trainer.checkpoints._storage

    def kept() -> list[str]:
        keys = [entry.key for entry in storage.entries(f"{PREFIX}/v000001")]
        return sorted(key.rpartition("/")[2] for key in keys)

    files = kept()
    assert trainer.checkpoints.set_aside_uncommitted(0) == [1]
    assert kept() == sorted([UNCOMMITTED, *(name for name in files if name != MANIFEST)])
    assert trainer.checkpoints.set_aside_uncommitted(0) == []
    assert UNCOMMITTED in kept()
    machine("next").publish(1, "other weights")
    assert kept() == files
    assert (machine("engines").checkpoints.policy(1) / WEIGHTS).read_text() == "other weights of 1"


def test_a_copy_of_a_run_is_refused_beside_its_original_which_goes_on(
    s3: str, policy: Path, tmp_path: Path
) -> None:
    config, paths = begun(tmp_path / "run", s3, policy)
    copied = RunPaths(tmp_path / "copy")
    shutil.copytree(paths.root, copied.root)
    copied_config = config_of(copied.root, s3, policy)
    with pytest.raises(RunDirectoryError, match=r"run/?, and .*copy is a copy: continue only one of the two"):
        prepare_record(copied_config, copied)
    assert prepare_record(config, paths) == 0

    ObjectStorage(s3).delete(OWNER)
    assert prepare_record(copied_config, copied) == 0
    with pytest.raises(RunDirectoryError, match=r"run is a copy: continue only one of the two"):
        prepare_record(config, paths)


def test_a_run_is_not_continued_with_the_blobs_of_another_one_in_its_prefix(
    s3: str, policy: Path, tmp_path: Path
) -> None:
    config, paths = begun(tmp_path / "run", s3, policy)
    storage = ObjectStorage(s3)
    other = PrefixOwner.of(paths, "another token")
    storage.put(OWNER, other.to_bytes())
    with pytest.raises(RunDirectoryError, match="holds the blobs of another run"):
        prepare_record(config, paths)
    assert PrefixOwner.of_bytes(storage.get(OWNER)) == other


def test_versions_that_are_ahead_of_a_restored_record_are_named_and_kept(
    s3: str, policy: Path, tmp_path: Path
) -> None:
    config, paths = begun(tmp_path / "run", s3, policy)
    trainer = Machine(paths.root, s3)
    for version in (1, 2, 3):
        trainer.publish(version)
    with pytest.raises(RecordDamaged, match=r"ends at version 0, and .* has v000002, v000003: put the newer"):
        prepare_record(config, paths)
    assert trainer.checkpoints.versions() == [0, 1, 2, 3]


def test_the_base_policy_of_a_new_run_is_version_0_for_every_machine(
    s3: str, policy: Path, machine: Callable[[str], Machine], tmp_path: Path
) -> None:
    begun(tmp_path / "run", s3, policy)
    engines = Machine(tmp_path / "engines", s3)
    assert (engines.checkpoints.policy(0) / WEIGHTS).read_text() == "base weights"


def test_a_run_is_not_continued_with_blobs_elsewhere(s3: str, policy: Path, tmp_path: Path) -> None:
    config, paths = begun(tmp_path / "run", s3, policy)
    refuse_without_record(config, paths)
    other = config_of(paths.root, "", policy)
    with pytest.raises(RunDirectoryError, match=r"continue it with run\.blobs = 's3://"):
        refuse_without_record(other, paths)


def test_a_run_whose_folder_of_checkpoints_is_gone_goes_on_from_the_published_one(
    s3: str, policy: Path, tmp_path: Path
) -> None:
    config, paths = begun(tmp_path / "run", s3, policy)
    _trained(paths, s3)
    shutil.rmtree(paths.checkpoints)
    assert prepare_record(config, paths) == 1
    assert load_checkpoint(paths.checkpoints / "v000001").state.version == 1


def test_a_damaged_newest_checkpoint_is_fetched_again_instead_of_an_older_one(
    s3: str, policy: Path, tmp_path: Path
) -> None:
    config, paths = begun(tmp_path / "run", s3, policy)
    _trained(paths, s3)
    (paths.checkpoints / "v000001" / WEIGHTS).write_text("damaged")
    prepare_record(config, paths)
    assert (paths.checkpoints / "v000001" / WEIGHTS).read_text() == "weights of 1"
    with StoreReader(paths.record) as record:
        assert record.newest_event(CHECKPOINT_RESTORED) is None


def test_a_newest_checkpoint_that_is_damaged_everywhere_is_named_with_the_remedy(
    s3: str, policy: Path, tmp_path: Path
) -> None:
    config, paths = begun(tmp_path / "run", s3, policy)
    _trained(paths, s3)
    (paths.checkpoints / "v000001" / WEIGHTS).write_text("damaged")
    Machine(paths.root, s3).checkpoints.remove(1)
    with pytest.raises(DiskError, match="version 1, the newest of the run, is whole neither here"):
        prepare_record(config, paths)


def _trained(paths: RunPaths, address: str) -> None:
    """One update on one group, its steps in the storage."""
    trainer = Machine(paths.root, address)
    with Store(paths.record, create=False, steps=blobs_of(paths).steps) as store:
        group_id = store.open_group("click-test", 7, 2, 10, 0)
        for reward in (0.0, 1.0):
            lease = store.lease_rollout(group_id, "env-000", 1e12)
            store.finish_rollout(lease.rollout_id, lease.fence, trajectory_for(lease, reward))
        batch = store.lease_batch([group_id], 1e12)
        trainer.publish(1)
        store.commit_update(batch.batch_id, 1, 1, {})


def test_readers_of_a_run_find_steps_in_the_storage_and_name_those_that_are_lost(
    s3: str, policy: Path, tmp_path: Path
) -> None:
    _, paths = begun(tmp_path / "run", s3, policy)
    _trained(paths, s3)
    blobs = blobs_of(paths)
    with StoreReader(paths.record, steps=blobs.steps) as reader:
        (group,) = reader.groups_to_trajectories([1])
        assert [len(one.steps) for one in group.trajectories] == [2, 2]
        assert reader.damaged_rows(full=True) == []
        for entry in [entry for shard in range(256) for entry in blobs.steps.entries(shard)]:
            blobs.steps.delete(entry.sha256)
        damaged = [str(finding) for finding in reader.damaged_rows(full=True)]
        assert len(damaged) == 2
        assert all("is missing" in line and s3 in line for line in damaged)
        with pytest.raises(BlobMissing):
            blobs.steps.read("0" * 64)


def test_an_error_of_a_child_is_raised_with_its_class_and_attributes(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path, STEPS)
    with pytest.raises(BlobMissing, match=f"{'0' * 64}.steps is missing") as raised:
        in_fresh_process(partial(blobs.read, "0" * 64))
    assert raised.value.sha256 == "0" * 64
    sha256 = blobs.put(b"steps")
    assert in_fresh_process(partial(blobs.read, sha256)) == b"steps"
    with pytest.raises(RuntimeError, match="ended with code -9"):
        in_fresh_process(partial(signal.raise_signal, signal.SIGKILL))


# ---- many files at a time ----

SHARDS = tuple(f"model-{number:05d}.safetensors" for number in range(1, 41))
LOST = SHARDS[5]
QUEUED = SHARDS[5 + TRANSFERS :]
"""Shards whose transfers are still queued when that of `LOST` begins."""


class Transfers:
    """Watches the transfers of shards: the first ones begin together, and that of one fails at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        self.fails = True
        self.most = 0
        self.begun: list[str] = []
        """Keys of all transfers that were begun."""
        self._under_way = 0
        self._lock = threading.Lock()
        self._together = threading.Barrier(TRANSFERS)
        self._make = getattr(ObjectStorage, method)
        monkeypatch.setattr(ObjectStorage, method, lambda *arguments: self._watched(*arguments))

    def _watched(self, storage: ObjectStorage, key: str, *rest: Any) -> Any:
        if not key.endswith(SHARDS):
            return self._make(storage, key, *rest)
        with self._lock:
            self._under_way += 1
            self.begun.append(key)
            self.most = max(self.most, self._under_way)
        try:
            if key.endswith(SHARDS[:TRANSFERS]):
                self._together.wait(60.0 * slowness())  # it breaks if they came one after the other
            if self.fails and key.endswith(LOST):
                raise StoreUnavailable(f"{storage.place(key)} cannot be transferred: connection reset")
            if self.fails and key.endswith(SHARDS[5:]):
                time.sleep(0.2)  # as long as it takes to see that one has failed
            return self._make(storage, key, *rest)
        finally:
            with self._lock:
                self._under_way -= 1


def write_shards(machine: Machine) -> Path:
    def write_files(folder: Path) -> None:
        for name in SHARDS:
            (folder / name).write_text(f"weights of {name}")

    return write_checkpoint(machine.paths.checkpoints, CheckpointState(version=7, learner={}), write_files)


def assert_files_of_one_attempt(trainer: Machine) -> None:
    kept = {entry.key.split("/")[2] for entry in trainer.checkpoints._storage.entries(PREFIX)}
    assert len(kept) == 2, "the manifest, and the files of one attempt"


def test_one_of_many_files_that_cannot_be_put_publishes_nothing_and_the_next_attempt_does(
    machine: Callable[[str], Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = machine("trainer")
    folder = write_shards(trainer)
    transfers = Transfers(monkeypatch, "put_file")
    with pytest.raises(StoreUnavailable, match=f"{LOST} cannot be transferred: connection reset"):
        trainer.checkpoints.publish(7, folder)
    assert transfers.most == TRANSFERS
    assert not [key for key in transfers.begun if key.endswith(QUEUED)]
    assert trainer.checkpoints._storage.entries(PREFIX) == [], "full storage needs the room"
    with pytest.raises(CorruptCheckpoint, match=r"manifest\.json is corrupt: expected an object"):
        machine("engines").checkpoints.policy(7)

    transfers.fails = False
    trainer.checkpoints.publish(7, folder)
    served = machine("engines").checkpoints.policy(7)
    assert {name: (served / name).read_text() for name in SHARDS} == {n: f"weights of {n}" for n in SHARDS}
    assert_files_of_one_attempt(trainer)


def test_one_of_many_files_that_cannot_be_fetched_leaves_no_version_and_the_next_try_has_all(
    machine: Callable[[str], Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, engines = machine("trainer"), machine("engines")
    trainer.checkpoints.publish(7, write_shards(trainer))
    transfers = Transfers(monkeypatch, "get_file")
    with pytest.raises(StoreUnavailable, match=f"{LOST} cannot be transferred: connection reset"):
        engines.checkpoints.policy(7)
    assert transfers.most == TRANSFERS
    assert not [key for key in transfers.begun if key.endswith(QUEUED)]
    assert not list((engines.paths.root / "cache").rglob("*.safetensors"))

    transfers.fails = False
    served = engines.checkpoints.policy(7)
    assert {name: (served / name).read_text() for name in SHARDS} == {n: f"weights of {n}" for n in SHARDS}


def test_files_that_can_neither_be_put_nor_deleted_go_with_the_next_attempt(
    machine: Callable[[str], Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_deletion(storage: ObjectStorage, key: str) -> None:
        raise BlobsBusy(f"{storage.place(key)}: the object storage does not answer")

    trainer = machine("trainer")
    folder = write_shards(trainer)
    transfers = Transfers(monkeypatch, "put_file")
    with monkeypatch.context() as patched:
        patched.setattr(ObjectStorage, "delete", no_deletion)
        with pytest.raises(StoreUnavailable, match=f"{LOST} cannot be transferred: connection reset"):
            trainer.checkpoints.publish(7, folder)
    assert trainer.checkpoints._storage.entries(PREFIX) != []

    transfers.fails = False
    trainer.checkpoints.publish(7, folder)
    assert_files_of_one_attempt(trainer)


def test_a_trainer_that_cannot_fetch_one_of_many_files_keeps_none_of_them(
    machine: Callable[[str], Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, other = machine("trainer"), machine("other trainer")
    trainer.checkpoints.publish(7, write_shards(trainer))
    transfers = Transfers(monkeypatch, "get_file")
    with pytest.raises(StoreUnavailable, match=f"{LOST} cannot be transferred: connection reset"):
        other.checkpoints.fetch(7)
    assert list(other.paths.checkpoints.iterdir()) == [], "a full disk needs the room"

    transfers.fails = False
    other.checkpoints.fetch(7)
    assert load_checkpoint(other.paths.checkpoints / "v000007").state.version == 7
