"""Every folder of a run is closed to others from the moment it exists, whatever the umask."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from dart.core.run_directory import claimed, make_private
from dart.store.blobs import FolderBlobs
from dart.store.checkpoints import CheckpointState, write_checkpoint


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[Path, int]]:
    """The mode of every folder in the moment it is made, under a umask that forbids nothing."""
    modes: dict[Path, int] = {}
    mkdir = os.mkdir

    def noted(path: str | Path, mode: int = 0o777, **options: int) -> None:
        mkdir(path, mode, **options)
        modes[Path(path)] = mode_of(Path(path))

    monkeypatch.setattr(os, "mkdir", noted)
    before = os.umask(0)
    yield modes
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_run_directory_and_its_folders_are_private_from_their_first_moment(
    made: dict[Path, int], tmp_path: Path
) -> None:
    root = tmp_path / "runs" / "new"
    with claimed(root, resume=False, config_toml="") as held:
        sha256 = FolderBlobs(held.paths.blobs).put(b"a screenshot")
        write_checkpoint(
            held.paths.checkpoints,
            CheckpointState(version=1, learner={}),
            lambda folder: (folder / "weights").write_text("") and None,
        )
    inside = {mode for path, mode in made.items() if path.is_relative_to(root)}
    assert {root, root / "logs", FolderBlobs(root / "blobs").path(sha256).parent} <= made.keys()
    assert inside == {0o700}
    assert made[root.parent] == 0o755, "others may pass, and not change what lies there"


def test_folders_that_were_open_before_are_closed(tmp_path: Path) -> None:
    root = tmp_path / "run"
    for folder in (root, root / "logs"):
        folder.mkdir()
        folder.chmod(0o777)
    with claimed(root, resume=False, config_toml=""):
        assert {mode_of(root), mode_of(root / "logs")} == {0o700}


def test_a_umask_that_shuts_the_owner_out_changes_nothing(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        make_private(tmp_path / "run")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "run") == 0o700


OTHER_USER = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_or_a_link_that_another_user_made_before_is_refused_and_unchanged(tmp_path: Path) -> None:
    mine, theirs, link = (tmp_path / name for name in ("mine", "theirs", "link"))
    for folder in (mine, theirs):
        folder.mkdir()
        folder.chmod(0o755)
    link.symlink_to(mine)
    for given in (theirs, link):
        os.chown(given, OTHER_USER, OTHER_USER, follow_symlinks=False)
        with pytest.raises(PermissionError, match=f"it belongs to user {OTHER_USER}"):
            make_private(given)
    assert (mode_of(mine), mode_of(theirs)) == (0o755, 0o755)


def test_a_link_of_ones_own_to_a_folder_elsewhere_is_taken(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "blobs").symlink_to(tmp_path / "disk")
    make_private(tmp_path / "blobs")
    assert mode_of(tmp_path / "disk") == 0o700
