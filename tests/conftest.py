"""The order of the whole suite: the longest files first, so that the workers end at about the same time.
And what many tests start from."""

import itertools
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import settings

from dart.testing.postgresql_server import PostgresqlServer, running_server
from tests.examples import QUICK
from tests.record_places import ON_POSTGRESQL, Databases, Files, RecordPlaces

# Before anything imports torch: the workers share the processors, and threads of torch that wait for one
# another keep them busy. Processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

LONGEST = (
    *("test_chaos.py", "test_align.py", "test_training_run.py", "test_smoke_run.py"),
    *("test_ray_run.py", "test_run_from_elsewhere.py", "test_ray_agents.py"),
)
"""The files that take minutes."""

LONG = "long"
"""The marker of the tests of `make test-long`."""

_databases = itertools.count(1)

# How long an example takes is the machine's matter: no property fails for it.
settings.register_profile("any machine", deadline=None)
settings.register_profile(QUICK, deadline=None)
settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "only_sqlite: about what PostgreSQL does not have; not run there")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m long`, leave out files without long tests: every worker imports each collected file."""
    is_without = (
        config.option.markexpr == LONG
        and collection_path.suffix == ".py"
        and f"mark.{LONG}" not in collection_path.read_text()
    )
    return is_without or None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: (item.path.name not in LONGEST, "e2e" not in item.path.parts))
    if ON_POSTGRESQL:
        items[:] = [item for item in items if runs_on_postgresql(item)]


def runs_on_postgresql(item: pytest.Item) -> bool:
    """Whether a test belongs to a run with DARTRL_TEST_RECORD=postgresql."""
    has_a_record = "places" in getattr(item, "fixturenames", ())
    return "cluster" in item.path.parts or (has_a_record and not item.get_closest_marker("only_sqlite"))


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """What runs in the process of the tests may configure structlog: the next test logs as ever."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Tiny checkpoints by model type, each made once."""
    from dart.testing.tiny_checkpoints import make_tiny
    from dart.testing.tiny_families import FAMILIES

    @cache
    def of(model_type: str) -> Path:
        folder = tmp_path_factory.mktemp("tiny") / model_type
        make_tiny(folder, model_type, FAMILIES[model_type])
        return folder

    return of


@pytest.fixture(scope="session")
def tiny_qwen(tiny_checkpoint: Callable[[str], Path]) -> Path:
    """A tiny checkpoint with the layout of Qwen2.5-VL."""
    return tiny_checkpoint("qwen2_5_vl")


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    """A running PostgreSQL server; a test that stops it starts it again."""
    with running_server() as server:
        yield server


@pytest.fixture
def new_database(postgresql: PostgresqlServer) -> Iterator[Callable[[], str]]:
    """Makes empty databases and returns their addresses; they are dropped after the test."""
    names: list[str] = []

    def make() -> str:
        names.append(f"test_{next(_databases)}")
        return postgresql.make_database(names[-1])

    yield make
    for name in names:
        postgresql.drop_database(name)


@pytest.fixture
def database(new_database: Callable[[], str]) -> str:
    """The address of an empty database."""
    return new_database()


@pytest.fixture(scope="session")
def original_records() -> dict[Any, Any]:
    """The records of which tests get copies, by what makes them."""
    return {}


@pytest.fixture
def places(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    original_records: dict[Any, Any],
) -> Iterator[RecordPlaces]:
    """Where this test keeps its records: in files, or on a PostgreSQL server."""
    originals = tmp_path_factory.getbasetemp()
    if not ON_POSTGRESQL:
        yield Files(tmp_path, originals, original_records)
        return
    databases = Databases(request.getfixturevalue("postgresql"), originals, original_records)
    yield databases
    databases.drop()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Name the database in the names of tests that run on PostgreSQL, beside those that run on files."""
    if ON_POSTGRESQL and "places" in metafunc.fixturenames:
        metafunc.parametrize("places", ["postgresql"], indirect=True)
