"""The port of the page, and the file with its token."""

import errno
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.applications import Starlette

from dart.core.errors import DiskError, UnavailableError, UsageError
from dart.web.server import address, listen, serve, token_of


def test_a_token_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "token"

    made, is_new = token_of(file)
    read, is_new_again = token_of(file)

    assert (is_new, is_new_again) == (True, False)
    assert made == read
    assert len(made) >= 40
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_token_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "token"
    token_of(file)
    file.chmod(mode)

    with pytest.raises(UsageError, match="chmod 600"):
        token_of(file)


def test_a_token_file_that_cannot_be_made_or_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="cannot be made: No such file"):
        token_of(tmp_path / "none" / "token")
    (tmp_path / "token").write_bytes(b"\xff" * 40)
    with pytest.raises(DiskError, match="cannot be read"):
        token_of(tmp_path / "token")


def test_an_empty_token_file_counts_as_missing(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.touch(mode=0o600)

    made, is_new = token_of(file)

    assert is_new
    assert token_of(file) == (made, False)


def test_a_token_that_cannot_be_written_is_an_error_and_made_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskError, match=r"token cannot be made: No space left .*; free space"):
        token_of(tmp_path / "token")
    monkeypatch.undo()

    made, is_new = token_of(tmp_path / "token")

    assert is_new
    assert len(made) >= 40


@pytest.mark.parametrize("is_empty_at_first", [False, True], ids=["no file", "an empty file"])
def test_starts_at_the_same_time_have_one_token(tmp_path: Path, is_empty_at_first: bool) -> None:
    file = tmp_path / "token"
    if is_empty_at_first:
        file.touch(mode=0o600)
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(token_of, [file] * 64))

    assert len({token for token, _ in made}) == 1
    assert sum(is_new for _, is_new in made) == 1
    assert list(tmp_path.iterdir()) == [file]


def test_a_token_file_that_only_can_be_read_is_read(tmp_path: Path) -> None:
    made, _ = token_of(tmp_path / "token")
    (tmp_path / "token").chmod(0o400)
    assert token_of(tmp_path / "token") == (made, False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_token_file_of_another_user_is_refused(tmp_path: Path) -> None:
    token_of(tmp_path / "token")
    os.chown(tmp_path / "token", 65534, 65534)
    with pytest.raises(UsageError, match="belongs to user 65534, who knows the token"):
        token_of(tmp_path / "token")


def test_what_is_no_regular_file_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "token").symlink_to("/dev/null")
    with pytest.raises(UsageError, match="can be read by other users"):
        token_of(tmp_path / "token")
    (tmp_path / "other").symlink_to(tmp_path / "missing")
    with pytest.raises(DiskError, match="other cannot be made"):
        token_of(tmp_path / "other")
    assert not (tmp_path / "missing").exists()


def test_a_port_that_is_taken_says_what_to_do() -> None:
    said = r": Address already in use; choose another port or host \(--port 0 takes a free port\)$"
    with listen("127.0.0.1", 0, "") as taken, pytest.raises(UnavailableError, match=said):
        listen("127.0.0.1", taken.getsockname()[1], "--port 0")


def test_a_host_that_is_none_of_this_machine_is_named_with_the_reason() -> None:
    with pytest.raises(UnavailableError, match=r"http://203\.0\.113\.1:0/: .*address"):
        listen("203.0.113.1", 0, "--port 0")


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.1", "http://127.0.0.1:8700/"), ("::1", "http://[::1]:8700/")]
)
def test_the_address_is_for_a_browser(host: str, expected: str) -> None:
    assert address(host, 8700) == expected


def test_a_server_gives_signs_of_life_after_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    set_back_unix_s, reads, beats = time.time() - 600.0, 0, 0

    def clock() -> float:
        nonlocal reads
        reads += 1
        if reads == 2:
            signal.raise_signal(signal.SIGINT)  # the server reads the clock every second
        return set_back_unix_s

    def beat() -> None:
        nonlocal beats
        beats += 1
        monkeypatch.setattr(time, "time", clock)

    with listen("127.0.0.1", 0, "") as listener:
        serve(Starlette(), listener, beat)

    assert beats >= 2
