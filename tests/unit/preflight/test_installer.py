"""What `dartrl setup` installs, decided without installing anything."""

import sys
from pathlib import Path

import pytest

from dart.config.config import Config, load_config
from dart.core.errors import UnavailableError
from dart.environments.faults import PagesMissing
from dart.environments.miniwob.pages import PAGES_PACKAGE
from dart.preflight import installer
from dart.preflight.installer import INSTALL_BROWSER, INSTALL_PAGES, install, missing_installations

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with neither browser nor pages, where root asks."""

    def no_pages() -> Path:
        raise PagesMissing("the package")

    monkeypatch.setattr(installer, "CHROMIUM", str(tmp_path / "no-browser"))
    monkeypatch.setattr(installer, "miniwob_html_dir", no_pages)
    monkeypatch.setattr(installer, "as_root", tuple)


BROWSER_AND_PAGES = [*INSTALL_BROWSER, INSTALL_PAGES]


@pytest.mark.usefixtures("bare")
def test_a_bare_machine_gets_the_browser_and_the_pages() -> None:
    assert missing_installations(Config()) == BROWSER_AND_PAGES


def test_a_machine_that_has_everything_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installer, "CHROMIUM", sys.executable)

    assert missing_installations(Config()) == []


@pytest.mark.usefixtures("bare")
def test_a_browser_that_the_configuration_names_is_not_installed() -> None:
    config = load_config(None, ["environments.executable=/opt/chromium"])

    assert missing_installations(config) == [INSTALL_PAGES]


@pytest.mark.usefixtures("bare")
def test_a_browser_is_not_installed_by_a_user_who_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installer, "as_root", lambda: None)

    assert missing_installations(Config()) == [INSTALL_PAGES]


@pytest.mark.usefixtures("bare")
def test_desktops_need_neither() -> None:
    overrides = ["environments.kind=desktop", "tasks.train=['desktop/calculator-sum']"]

    assert missing_installations(load_config(None, overrides)) == []


@pytest.mark.usefixtures("bare")
def test_sudo_stands_before_every_command_of_apt_and_of_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installer, "as_root", lambda: ("sudo", "-n"))

    by_sudo = [("sudo", "-n", *command) for command in INSTALL_BROWSER]
    assert missing_installations(Config()) == [*by_sudo, INSTALL_PAGES]


def test_the_pages_come_through_the_pip_of_this_python_without_dependencies() -> None:
    assert INSTALL_PAGES[:4] == (sys.executable, "-P", "-m", "pip")
    assert INSTALL_PAGES[-2:] == ("--no-deps", PAGES_PACKAGE)


def test_every_place_names_the_same_version_of_the_pages() -> None:
    assert PAGES_PACKAGE in (REPOSITORY / "constraints.txt").read_text().splitlines()
    assert f"pip install --no-deps {PAGES_PACKAGE}" in str(PagesMissing("anything"))


def test_a_command_is_announced_before_it_runs(capfd: pytest.CaptureFixture[str]) -> None:
    announced: list[str] = []

    install(("sh", "-c", "echo ran >&2"), announced.append)

    assert announced == ["running sh -c 'echo ran >&2'"]
    assert capfd.readouterr().err == "ran\n"


def test_a_command_that_fails_is_named_with_its_exit_code() -> None:
    with pytest.raises(UnavailableError, match="'sh -c 'exit 100'' ended with exit code 100"):
        install(("sh", "-c", "exit 100"), lambda text: None)
