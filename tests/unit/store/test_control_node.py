"""The one row in which a control node says where it can be asked."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dart.core.record_address import RecordAddress
from dart.store import migrations
from dart.store.control_node import ControlNode, announce, keep_announced, note_end, read_control_node
from dart.store.errors import StoreUnavailable
from dart.store.store import Store
from tests.control_node import NODE
from tests.record_places import RecordPlaces, make_older_record


@pytest.fixture
def record(places: RecordPlaces) -> RecordAddress:
    address = places.empty()
    Store(address).close()
    return address


def test_a_record_without_a_control_node_has_none(record: RecordAddress) -> None:
    assert read_control_node(record) is None


def test_the_newest_announcement_is_read(record: RecordAddress) -> None:
    announce(record, NODE)
    later = replace(NODE, address="10.0.0.2:5000", token="another", pid=8, began_unix_s=200.0)
    announce(record, later)

    assert read_control_node(record) == later


def test_a_row_is_kept_by_its_own_control_node_alone(record: RecordAddress) -> None:
    announce(record, NODE)
    later = replace(NODE, token="another")
    announce(record, later)

    keep_announced(record, NODE.seen_at(500.0, session="{}", config=""))
    assert read_control_node(record) == later

    kept = later.seen_at(500.0, session='{"elapsed_s": 1}', config="[run]\nminutes = 2.0\n")
    keep_announced(record, kept)
    assert read_control_node(record) == kept


@pytest.mark.parametrize(("pid", "began_unix_s"), [(8, 100.25), (7, 100.5)])
def test_another_start_of_the_run_does_not_end_it(
    record: RecordAddress, pid: int, began_unix_s: float
) -> None:
    announce(record, NODE)

    note_end(record, pid, began_unix_s, 300.0)

    assert read_control_node(record) == NODE


def test_the_end_is_written_once_and_the_next_start_takes_it_back(record: RecordAddress) -> None:
    announce(record, NODE)
    for unix_s in (300.0, 400.0):
        note_end(record, NODE.pid, NODE.began_unix_s, unix_s)
    assert read_control_node(record) == replace(NODE, ended_unix_s=300.0)

    announce(record, NODE)
    assert read_control_node(record) == NODE


@pytest.mark.parametrize(("migration", "found"), [("0010", None), ("0011", NODE)])
def test_a_control_node_that_runs_an_older_version_is_found_before_its_record_is_migrated(
    places: RecordPlaces,
    monkeypatch: pytest.MonkeyPatch,
    migration: str,
    found: ControlNode | None,
) -> None:
    older = places.empty()
    make_older_record(older, migration)
    with monkeypatch.context() as earlier:
        earlier.setattr(migrations, "SCHEMA_VERSION", migration)
        if found is not None:
            announce(older, found)

    assert read_control_node(older) == found
    with pytest.raises(StoreUnavailable, match=f"is at schema '{migration}'"):
        announce(older, NODE)


def test_the_token_is_in_no_text_of_the_row() -> None:
    assert NODE.token not in repr(NODE)


@pytest.mark.parametrize("ask", [read_control_node, lambda record: announce(record, NODE)])
def test_a_missing_record_is_an_error_and_is_not_made(tmp_path: Path, ask: Callable[[Path], object]) -> None:
    with pytest.raises(StoreUnavailable, match="does not exist"):
        ask(tmp_path / "store.db")
    assert not (tmp_path / "store.db").exists()
