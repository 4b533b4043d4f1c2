from pathlib import Path

import pytest

from tests.unit.environments.osworld.fake_evaluators import make_evaluators


@pytest.fixture(scope="session")
def evaluators(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with `tests.unit.environments.osworld.fake_evaluators`."""
    return make_evaluators(tmp_path_factory.mktemp("evaluators") / "venv")
