"""Bundled configurations are found by name, from a clone and from an installed package alike."""

import shutil
from pathlib import Path

import pytest

from dart.config import bundled
from dart.config.bundled import bundled_folder, bundled_names, configuration_file
from dart.config.config import ConfigError, load_config, resolve

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package folder as a wheel leaves it, with the configurations inside."""
    package = tmp_path / "site-packages" / "dart"
    shutil.copytree(REPOSITORY / "configs", package / "configs")
    monkeypatch.setattr(bundled, "PACKAGE", package)
    return package


def problem_of(name: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(Path(name))
    return str(caught.value)


def test_a_clone_has_them_beside_its_packages() -> None:
    assert bundled_folder() == REPOSITORY / "configs"


def test_an_installed_package_has_them_inside(installed: Path) -> None:
    assert bundled_folder() == installed / "configs"
    assert {"laptop", "smoke", "demo"} <= set(bundled_names())


@pytest.mark.usefixtures("elsewhere")
def test_a_bare_name_is_a_bundled_configuration_and_finds_the_base_policy() -> None:
    config = load_config(Path("smoke"))

    assert config == load_config(REPOSITORY / "configs" / "smoke.toml")
    assert config.training.policy == REPOSITORY / "configs" / "base-policy"


@pytest.mark.usefixtures("elsewhere")
def test_an_installed_configuration_finds_the_files_that_came_with_it(installed: Path) -> None:
    laptop = load_config(Path("laptop"))
    assert laptop.training.policy == installed / "configs" / "base-policy"
    assert laptop.curation.experience_pool.folders == (installed / "configs" / "demonstrations",)
    assert load_config(None).training.policy == installed / "configs" / "base-policy"
    prompt = Path(load_config(Path("tiny-vlm")).context.prompt)
    assert prompt == installed / "configs" / "tiny-vlm-prompt.txt"


def test_a_file_of_the_same_name_wins_over_the_bundled_configuration(elsewhere: Path) -> None:
    (elsewhere / "laptop").write_text("[training]\nlr = 1e-9\n")

    assert load_config(Path("laptop")).training.lr == 1e-9


@pytest.mark.parametrize("path", ["configs/laptop", "laptop.toml", "./sub/laptop", "/laptop"])
def test_what_has_a_folder_or_a_suffix_is_a_path(elsewhere: Path, path: str) -> None:
    assert configuration_file(Path(path)) == Path(path)


@pytest.mark.usefixtures("elsewhere")
def test_an_unknown_name_gets_the_nearest_one_and_the_list() -> None:
    problem = problem_of("lapotp")

    assert problem.startswith("lapotp: there is no such file; did you mean laptop?")
    assert "the bundled configurations are align, chaos, cluster, decoupling, demo, desktop" in problem


@pytest.mark.usefixtures("elsewhere")
def test_values_name_the_configuration_they_come_from() -> None:
    _, origins = resolve(Path("smoke"))
    assert origins["training.updates"] == "smoke"


def test_a_policy_of_the_working_directory_is_found(elsewhere: Path) -> None:
    (elsewhere / "mine").mkdir()

    config = load_config(Path("laptop"), ["training.policy=mine"])

    assert config.training.policy == elsewhere / "mine"


def test_a_policy_that_is_nowhere_is_one_of_the_working_directory(elsewhere: Path) -> None:
    assert load_config(None, ["training.policy=mine"]).training.policy == elsewhere / "mine"
