"""The pool is filled by another process; what it says comes back as this process's errors."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dart.config.sections import ContextSettings
from dart.core.errors import DiskError, UnavailableError
from dart.core.run_directory import RunPaths
from dart.training.demonstration_import_process import fill_pool

FOLDERS = (Path("/somewhere/one"), Path("/somewhere/two"))
CONTEXT = ContextSettings(turns=3)
OPTIONS = ["--context", CONTEXT.model_dump_json()]

Ended = "subprocess.CompletedProcess[str]"


def answering(monkeypatch: pytest.MonkeyPatch, told: str, returncode: int = 0) -> list[list[str]]:
    """The other process says this; the commands it was started with."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> Ended:
        commands.append(command)
        return subprocess.CompletedProcess(command, returncode, stdout=told, stderr="Traceback: it broke")

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_folders_are_imported_by_one_process_with_the_runs_policy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands = answering(
        monkeypatch, "a warning of a library\n" + json.dumps({"added": 3, "known": 4}) + "\n"
    )
    paths = RunPaths(tmp_path)
    assert fill_pool(FOLDERS, Path("/a/policy"), paths, CONTEXT) == (3, 4)
    (command,) = commands
    assert command[3:] == [str(paths.store), str(paths.root), "/a/policy", *map(str, FOLDERS), *OPTIONS]


def test_without_folders_no_process_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands = answering(monkeypatch, "")
    assert fill_pool((), Path("/a/policy"), RunPaths(tmp_path), CONTEXT) == (0, 0)
    assert commands == []


@pytest.mark.parametrize(("disk", "error"), [(False, UnavailableError), (True, DiskError)])
def test_what_is_wrong_comes_back_as_an_error_for_a_person(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, disk: bool, error: type[Exception]
) -> None:
    answering(monkeypatch, json.dumps({"failed": "line 3: mend it", "disk": disk}))
    with pytest.raises(error, match="line 3: mend it"):
        fill_pool(FOLDERS, Path("/a/policy"), RunPaths(tmp_path), CONTEXT)


def test_a_defect_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answering(monkeypatch, "", returncode=1)
    with pytest.raises(RuntimeError, match=r"/somewhere/one, /somewhere/two ended with code 1:\nTraceback"):
        fill_pool(FOLDERS, Path("/a/policy"), RunPaths(tmp_path), CONTEXT)
