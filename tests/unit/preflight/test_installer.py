"""What `dartrl setup` installs, decided without installing anything."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from dart.config.config import Config, load_config
from dart.core.errors import UnavailableError
from dart.environments.faults import PagesMissing
from dart.environments.miniwob.pages import PAGES_PACKAGE
from dart.preflight import installer
from dart.preflight.installer import (
    Installation,
    browser_installation,
    install,
    missing_installations,
    pages_installation,
)

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with neither browser nor pages, where root asks."""

    def no_pages() -> Path:
        raise PagesMissing("the package")

    monkeypatch.setattr(installer, "CHROMIUM", str(tmp_path / "no-browser"))
    monkeypatch.setattr(installer, "miniwob_html_dir", no_pages)
    monkeypatch.setattr(installer, "as_root", tuple)


def wanted(*overrides: str) -> list[str]:
    return [one.what for one in missing_installations(load_config(None, overrides))]


@pytest.mark.usefixtures("bare")
def test_a_bare_machine_gets_the_browser_and_the_pages() -> None:
    assert wanted() == ["the browser", "the MiniWoB++ pages"]


def test_a_machine_that_has_everything_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installer, "CHROMIUM", sys.executable)

    assert missing_installations(Config()) == []


@pytest.mark.usefixtures("bare")
def test_a_browser_that_the_configuration_names_is_not_installed() -> None:
    assert wanted("environments.executable=/opt/chromium") == ["the MiniWoB++ pages"]


@pytest.mark.usefixtures("bare")
def test_a_browser_is_not_installed_by_a_user_who_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installer, "as_root", lambda: None)

    assert wanted() == ["the MiniWoB++ pages"]


@pytest.mark.usefixtures("bare")
def test_desktops_need_neither() -> None:
    assert wanted("environments.kind=desktop", "tasks.train=['desktop/calculator-sum']") == []


def test_root_needs_no_sudo_and_others_put_it_before_every_command() -> None:
    plain = browser_installation(()).commands
    by_sudo = browser_installation(("sudo", "-n")).commands

    assert plain[0] == ("apt-get", "update", "-qq")
    assert by_sudo == tuple(("sudo", "-n", *command) for command in plain)


def test_the_pages_come_through_the_pip_of_this_python_without_dependencies() -> None:
    (command,) = pages_installation(sys.executable).commands

    assert command[:3] == (sys.executable, "-m", "pip")
    assert command[-2:] == ("--no-deps", PAGES_PACKAGE)


def test_every_place_names_the_same_version_of_the_pages() -> None:
    assert PAGES_PACKAGE in (REPOSITORY / "constraints.txt").read_text().splitlines()
    assert f"pip install --no-deps {PAGES_PACKAGE}" in str(PagesMissing("anything"))


def test_each_command_is_announced_before_it_runs() -> None:
    told: list[str] = []

    def run(command: Sequence[str]) -> int:
        told.append(f"ran {' '.join(command)}")
        return 0

    install(Installation("it", (("a", "b c"), ("d",))), announce=told.append, run=run)

    assert told == ["installing it: a 'b c'", "ran a b c", "installing it: d", "ran d"]


def test_a_command_that_fails_is_named_and_ends_the_installation() -> None:
    ran: list[Sequence[str]] = []

    def fails(command: Sequence[str]) -> int:
        ran.append(command)
        return 100

    with pytest.raises(UnavailableError, match="'apt-get update -qq' ended with exit code 100"):
        install(browser_installation(()), announce=lambda text: None, run=fails)
    assert len(ran) == 1
