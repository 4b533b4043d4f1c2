"""Transfers of the files of one version: several at a time, and none begins after one has failed."""

import threading

import pytest

from dart.store import transfers
from dart.store.transfers import TRANSFERS, transfer_each

FILES = tuple(range(12))


def test_each_file_is_transferred_once_and_several_at_a_time() -> None:
    together = threading.Barrier(TRANSFERS)
    made: list[int] = []

    def transfer(file: int) -> None:
        together.wait(60.0)  # it breaks if they come one after the other
        made.append(file)

    transfer_each(transfer, FILES)
    assert sorted(made) == list(FILES)


def test_no_transfer_begins_after_one_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "TRANSFERS", 1)
    begun: list[int] = []

    def transfer(file: int) -> None:
        begun.append(file)
        if file == 3:
            raise ConnectionResetError("file 3 is lost")

    with pytest.raises(ConnectionResetError, match="file 3 is lost"):
        transfer_each(transfer, FILES)
    assert begun == [0, 1, 2, 3]


def test_a_transfer_under_way_ends_before_the_error_of_another_is_raised() -> None:
    begun: list[int] = []
    ended: list[int] = []
    has_failed = threading.Event()

    def transfer(file: int) -> None:
        begun.append(file)
        if file == 0:
            has_failed.set()
            raise ConnectionResetError("file 0 is lost")
        assert has_failed.wait(60.0)
        ended.append(file)

    with pytest.raises(ConnectionResetError, match="file 0 is lost"):
        transfer_each(transfer, FILES[:2])
    assert (sorted(begun), ended) in (([0, 1], [1]), ([0], []))


def test_an_interrupt_begins_no_further_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "TRANSFERS", 1)
    begun: list[int] = []

    def transfer(file: int) -> None:
        begun.append(file)
        if file == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        transfer_each(transfer, FILES)
    assert begun == [0, 1]
