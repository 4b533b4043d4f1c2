"""The port of the page, and the file with its token."""

from pathlib import Path

import pytest

from dart.core.errors import DiskError, UnavailableError, UsageError
from dart.web.server import address, listen, token_of


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


def test_a_port_that_is_taken_says_what_to_do() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(UnavailableError, match="choose another port"):
        listen("127.0.0.1", taken.getsockname()[1])


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.1", "http://127.0.0.1:8700/"), ("::1", "http://[::1]:8700/")]
)
def test_the_address_is_for_a_browser(host: str, expected: str) -> None:
    assert address(host, 8700) == expected
