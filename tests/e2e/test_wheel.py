"""Installed, not cloned: the wheel in an empty environment, in a folder that knows nothing of the checkout.

Everything is installed anew, torch too, which takes minutes: `make test-wheel` runs it, and `make test` says
that it was left out.
"""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
CONSTRAINTS = REPOSITORY / "constraints.txt"
INSTALL_DEADLINE_S = 1200.0
TRAIN_DEADLINE_S = 400.0

Ended = subprocess.CompletedProcess[str]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.timeout(2000),
    pytest.mark.skipif(
        not os.environ.get("DARTRL_TEST_WHEEL"),
        reason="installing everything into an empty environment takes minutes: make test-wheel",
    ),
]


def ran(*command: str | Path, cwd: Path, timeout_s: float = 120.0) -> Ended:
    """A command outside of the checkout: no variable of this environment leads Python back into it."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=kept | {"COLUMNS": "120", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def succeeded(ended: Ended) -> str:
    """What a command printed that ended well."""
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, REPOSITORY)
    succeeded(ran(*build, cwd=folder, timeout_s=INSTALL_DEADLINE_S))
    (built,) = folder.glob("dartrl-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that has the wheel and what it needs, and nothing else."""
    root = tmp_path_factory.mktemp("environment")
    succeeded(ran(sys.executable, "-m", "venv", root, cwd=root))
    install = (root / "bin" / "python", "-m", "pip", "install", "--quiet", "--constraint", CONSTRAINTS)
    for wanted in ("torch", f"{wheel}[train]"):  # torch alone: the build that is chosen here is kept
        succeeded(ran(*install, wanted, cwd=root, timeout_s=INSTALL_DEADLINE_S))
    return root / "bin"


@pytest.fixture(scope="module")
def set_up(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ended, Ended]:
    """What `dartrl setup` said: first only asked for what is missing, then told to install it."""
    folder = tmp_path_factory.mktemp("anywhere")
    return ran(installed / "dartrl", "setup", "--check", cwd=folder), ran(
        installed / "dartrl", "setup", cwd=folder
    )


def test_the_wheel_carries_the_configurations_and_the_base_policy(wheel: Path) -> None:
    carried = set(zipfile.ZipFile(wheel).namelist())

    files = [path.relative_to(REPOSITORY) for path in (REPOSITORY / "configs").rglob("*") if path.is_file()]
    assert {f"dart/{path}" for path in files} <= carried
    assert not [name for name in carried if name.startswith(("configs/", "tests/", "benchmarks/"))]


def test_setup_names_what_is_missing_and_installs_it(set_up: tuple[Ended, Ended]) -> None:
    checked, done = set_up

    assert checked.returncode == 69
    assert "the MiniWoB++ pages are missing" in checked.stderr
    assert "setup: running" in done.stderr
    assert succeeded(done) == "nothing is missing\n"


@pytest.mark.usefixtures("set_up")
def test_an_installed_dartrl_trains_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    where = succeeded(ran(installed / "python", "-c", "import dart; print(dart.__file__)", cwd=tmp_path))
    assert where.startswith(str(installed.parent))

    succeeded(ran(installed / "dartrl", "train", "smoke", cwd=tmp_path, timeout_s=TRAIN_DEADLINE_S))

    report = json.loads((tmp_path / "runs" / "smoke" / "report.json").read_text())
    assert report["completed"]
    assert report["updates"] == 3


@pytest.mark.usefixtures("set_up")
def test_a_new_project_has_a_good_configuration_and_all_it_needs(installed: Path, tmp_path: Path) -> None:
    succeeded(ran(installed / "dartrl", "init", "project", cwd=tmp_path))

    project = tmp_path / "project"
    assert (
        succeeded(ran(installed / "dartrl", "config", "check", "train.toml", cwd=project))
        == "train.toml: valid\n"
    )
    plan = succeeded(ran(installed / "dartrl", "up", "train.toml", "--dry-run", cwd=project))
    assert "everything that the run needs is there" in plan
