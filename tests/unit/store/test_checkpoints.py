import errno
from pathlib import Path

import pytest

from dart.store import checkpoints
from dart.store.checkpoints import (
    CheckpointExists,
    CheckpointNotWritten,
    CheckpointState,
    CorruptCheckpoint,
    latest_good,
    list_checkpoints,
    load_checkpoint,
    prune,
    write_checkpoint,
)


def write_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"weights" * 100)
    (folder / "sub").mkdir()
    (folder / "sub" / "optimizer.pt").write_bytes(b"moments")


def publish(parent: Path, version: int) -> Path:
    return write_checkpoint(
        parent, CheckpointState(version=version, learner={"updates": version}), write_weights
    )


def test_a_checkpoint_comes_back_as_it_was_written(tmp_path: Path) -> None:
    folder = publish(tmp_path, 7)
    assert folder.name == "v000007"
    assert load_checkpoint(folder).state == CheckpointState(version=7, learner={"updates": 7})


def test_a_version_is_never_written_twice(tmp_path: Path) -> None:
    publish(tmp_path, 1)
    with pytest.raises(CheckpointExists, match="v000001"):
        publish(tmp_path, 1)


@pytest.mark.parametrize("name", ["model.safetensors", "sub/optimizer.pt"])
def test_a_changed_file_is_found_and_named(tmp_path: Path, name: str) -> None:
    folder = publish(tmp_path, 1)
    path = folder / name
    path.write_bytes(path.read_bytes()[:-1] + b"X")
    with pytest.raises(CorruptCheckpoint, match=rf"{name} is corrupt: expected sha256 .*--resume") as corrupt:
        load_checkpoint(folder)
    assert corrupt.value.file == name


def test_a_missing_file_is_found_and_named(tmp_path: Path) -> None:
    folder = publish(tmp_path, 1)
    (folder / "model.safetensors").unlink()
    with pytest.raises(CorruptCheckpoint, match=r"model\.safetensors .*missing"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("old", "new"),
    [('"updates": 1', '"updates": 9'), ('"sha256"', '"sha257"'), ("state_sha256", "state_sha257")],
)
def test_a_change_of_the_state_file_itself_is_found(tmp_path: Path, old: str, new: str) -> None:
    path = publish(tmp_path, 1) / "state.json"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(CorruptCheckpoint, match=r"state\.json is corrupt: expected sha256"):
        load_checkpoint(path.parent)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}'])
def test_a_broken_state_file_is_corruption_not_a_crash(tmp_path: Path, text: str) -> None:
    folder = publish(tmp_path, 1)
    (folder / "state.json").write_text(text)
    with pytest.raises(CorruptCheckpoint, match=r"state\.json"):
        load_checkpoint(folder)


def test_the_newest_good_checkpoint_is_found_behind_corrupt_ones(tmp_path: Path) -> None:
    for version in (1, 2, 10):
        publish(tmp_path, version)
    (tmp_path / "v000010" / "state.json").unlink()
    (tmp_path / "v000002" / "model.safetensors").write_bytes(b"")
    good, refused = latest_good(tmp_path)
    assert good is not None
    assert good.state.version == 1
    assert [corrupt.folder.name for corrupt in refused] == ["v000010", "v000002"]


@pytest.mark.parametrize("name", ["model.safetensors", "sub/optimizer.pt", "state.json"])
def test_the_newest_good_checkpoint_is_found_behind_one_that_the_disk_cannot_read(
    tmp_path: Path, name: str
) -> None:
    publish(tmp_path, 1)
    unreadable = publish(tmp_path, 2) / name
    unreadable.unlink()
    unreadable.symlink_to("/proc/self/mem")  # to read its begin is an error (EIO)
    good, refused = latest_good(tmp_path)
    assert good is not None
    assert good.state.version == 1
    assert [one.file for one in refused] == [name]
    assert f"{name} is corrupt" in str(refused[0])
    assert "Input/output error" in str(refused[0])


def test_a_file_that_cannot_be_read_back_is_no_checkpoint(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "model.safetensors").symlink_to("/proc/self/mem")

    with pytest.raises(CheckpointNotWritten, match="Input/output error"):
        write_checkpoint(tmp_path, CheckpointState(version=1, learner={}), write)
    assert list_checkpoints(tmp_path) == []


def test_no_checkpoint_at_all_is_none(tmp_path: Path) -> None:
    assert latest_good(tmp_path / "nowhere") == (None, [])


def test_a_writer_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    publish(tmp_path, 1)

    def full_disk(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(CheckpointNotWritten, match=r"No space left on device.*free space there"):
        write_checkpoint(tmp_path, CheckpointState(version=2, learner={}), full_disk)
    assert [path.name for path in tmp_path.iterdir()] == ["v000001"]


def test_a_checkpoint_whose_name_the_full_disk_did_not_keep_can_be_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(path: Path) -> None:
        if path == tmp_path:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(checkpoints, "sync_path", full_disk)
        with pytest.raises(CheckpointNotWritten, match="No space left on device"):
            publish(tmp_path, 1)
    assert list(tmp_path.iterdir()) == []
    assert load_checkpoint(publish(tmp_path, 1)).state.version == 1


def test_an_interrupted_write_is_invisible_and_cleared_by_the_next(tmp_path: Path) -> None:
    leftover = tmp_path / ".v000002.tmp"
    leftover.mkdir()
    (leftover / "model.safetensors").write_bytes(b"half")
    assert list_checkpoints(tmp_path) == []
    publish(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["v000002"]


def test_pruning_keeps_the_newest_and_the_protected(tmp_path: Path) -> None:
    for version in range(6):
        publish(tmp_path, version)
    removed = prune(tmp_path, keep=2, protect=frozenset({0}))
    assert [path.name for path in removed] == ["v000001", "v000002", "v000003"]
    assert [path.name for path in list_checkpoints(tmp_path)] == ["v000000", "v000004", "v000005"]


def test_pruning_everything_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        prune(tmp_path, keep=0)
