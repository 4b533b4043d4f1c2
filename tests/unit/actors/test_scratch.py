"""Temporary folders: short paths, one owner each, and none left for ever by a process that was killed."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors import scratch
from actors.scratch import LOCK, PREFIX, scratch_folder


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    base = tmp_path / "temporary"
    base.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    return base


def test_a_folder_is_private_and_gone_after_the_block(temporary: Path) -> None:
    with scratch_folder(1000) as folder:
        assert folder.parent == temporary
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "file").write_text("x")
    assert list(temporary.iterdir()) == []


def test_a_folder_is_locked_itself_so_that_no_cleaner_of_old_files_empties_it(temporary: Path) -> None:
    with scratch_folder(1000) as folder:
        fd = os.open(folder, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(fd)


def test_where_the_path_would_be_too_long_another_place_is_taken(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = tmp_path / "s"
    short.mkdir()
    monkeypatch.setattr(scratch, "SHORT_DIR", short)
    with scratch_folder(len(os.fsencode(temporary)) + 5) as folder:
        assert folder.parent == short


def test_the_folder_of_a_killed_process_is_removed_and_no_other(temporary: Path) -> None:
    killed, foreign, beginning = (temporary / f"{PREFIX}{name}" for name in ("killed", "foreign", "begins"))
    for folder in (killed, foreign, beginning):
        folder.mkdir()
    (killed / LOCK).write_text("4711")
    (killed / "board").write_text("x")
    (beginning / LOCK).write_text("")
    with scratch_folder(1000) as first, scratch_folder(1000) as second:
        assert not killed.exists()
        assert all(folder.exists() for folder in (foreign, beginning, first, second))


def test_a_folder_is_kept_as_long_as_a_forked_child_of_its_owner_has_it(temporary: Path) -> None:
    said, saying = os.pipe()
    ended, ending = os.pipe()
    if not (pid := os.fork()):
        with scratch_folder(1000) as folder:
            if not os.fork():
                os.write(saying, str(folder).encode())
                os.close(ending)
                os.read(ended, 1)
                os._exit(0)
            os._exit(0)
    os.waitpid(pid, 0)
    folder = Path(os.read(said, 1000).decode())
    with scratch_folder(1000):
        assert folder.exists()
    for fd in (said, saying, ended, ending):
        os.close(fd)
