"""A record with version 0, migrated once for all tests."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dart.store.store import Store


@pytest.fixture(scope="session")
def new_record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("new") / "store.db"
    with Store(path) as store:
        store.add_version()
    return path


@pytest.fixture
def record(tmp_path: Path, new_record: Path) -> Iterator[Store]:
    """Open for writing; its clock always shows 5000."""
    path = shutil.copy(new_record, tmp_path / "store.db")
    with Store(path, clock=lambda: 5000.0) as opened:
        yield opened
