"""A record with version 0, migrated once for all tests."""

from collections.abc import Callable, Iterator

import pytest

from dart.core.record_address import RecordAddress
from dart.store.store import Store
from tests.record_places import RecordPlaces


def with_version_0(store: Store) -> None:
    store.add_version()


@pytest.fixture
def new_record(places: RecordPlaces) -> RecordAddress:
    """The address of a record with version 0."""
    return places.copy_of(with_version_0)


@pytest.fixture
def record(places: RecordPlaces, new_record: RecordAddress) -> Iterator[Store]:
    """Open for writing; its clock always shows 5000."""
    with Store(new_record, clock=lambda: 5000.0, steps=places.steps) as opened:
        yield opened


@pytest.fixture
def fenced(places: RecordPlaces, new_record: RecordAddress) -> Callable[[], int]:
    """Returns the number of late reports that the record has refused."""
    total = "SELECT sum(value) FROM counters WHERE name IN ('fenced', 'fenced_commits')"
    return lambda: int(places.run(new_record, total)[0][0])
