"""What a process of this project imports from the working directory of the process that starts it."""

import subprocess
import sys
from pathlib import Path

import pytest

from dart.core.module_command import module_command


def test_a_module_in_the_working_directory_takes_no_place_of_an_installed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "__init__.py").write_text("raise SystemExit('not the installed one')")
    monkeypatch.chdir(tmp_path)

    command = [*module_command("json.tool"), "--help"]

    assert subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_what_this_process_imports_from_the_working_directory_another_one_does_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_module.py").write_text("print('found')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    assert subprocess.check_output(module_command("own_module"), text=True) == "found\n"
