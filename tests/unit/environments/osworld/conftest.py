from pathlib import Path

import pytest

from tests.unit.environments.osworld.fake_evaluators import make_evaluators
from tests.unit.environments.osworld.guest_server import FakeDesktop


@pytest.fixture(scope="session")
def evaluators(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with `tests.unit.environments.osworld.fake_evaluators`."""
    return make_evaluators(tmp_path_factory.mktemp("evaluators") / "venv")


@pytest.fixture
def desktop(tmp_path: Path) -> FakeDesktop:
    """A desktop with one window and an empty home."""
    (tmp_path / "home").mkdir()
    found = FakeDesktop(tmp_path / "home")
    found.add_window("Notes")
    return found
