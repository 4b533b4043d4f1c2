"""The commands `python -m dart.…` end with the message of an error that a person can fix."""

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from dart.core.module_main import errors_as_messages
from dart.environments.browser.demonstrations import run_command
from dart.environments.miniwob.demonstrations import MINIWOB
from dart.environments.miniwob.environment import MiniWobEnvironment
from dart.grounding import pages
from dart.imitation import vlm
from dart.policy import merge_adapter, pointer_checkpoint

WITHOUT_BROWSER = partial(MiniWobEnvironment, executable="/nowhere/chromium")


@pytest.fixture
def ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Callable[[], None], str], str]:
    """Runs a command with arguments in an empty folder, and returns what it said at its end with code 2."""
    monkeypatch.chdir(tmp_path)

    def end(command: Callable[[], None], arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["command", *arguments.split()])
        with pytest.raises(SystemExit) as end:
            command()
        assert end.value.code == 2
        return capsys.readouterr().err

    return end


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        (merge_adapter.main, "v000042 out", "there is no folder v000042"),
        (pointer_checkpoint.main, "missing out", "expected a policy checkpoint in missing"),
        (vlm.main, "demonstrations missing out", "expected a policy checkpoint in missing"),
        (vlm.main, "demonstrations missing out --prompt words.txt", "words.txt"),
        (partial(run_command, replace(MINIWOB, make=WITHOUT_BROWSER)), "--out out", "apt-get install"),
    ],
)
def test_what_is_missing_is_named_with_the_remedy(
    ended: Callable[[Callable[[], None], str], str],
    command: Callable[[], None],
    arguments: str,
    message: str,
) -> None:
    assert message in ended(command, arguments)


def test_a_missing_browser_ends_the_collection_of_pages_with_the_remedy(
    ended: Callable[[Callable[[], None], str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MiniWobEnvironment", WITHOUT_BROWSER)

    assert "apt-get install" in ended(pages.main, "out --pages 1")


def test_ctrl_c_ends_a_command_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="130"), errors_as_messages(ArgumentParser()):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (merge_adapter.main, "v000042 ."),
        (pointer_checkpoint.main, "missing ."),
        (vlm.main, "demonstrations missing ."),
    ],
)
def test_a_folder_that_exists_is_refused_before_anything_is_loaded(
    ended: Callable[[Callable[[], None], str], str], command: Callable[[], None], arguments: str
) -> None:
    assert "expected a new folder, but . exists already" in ended(command, arguments)
