"""Work in a process of its own: its result, its error, its death and its deadline come back."""

import os
import pickle
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from dart.core.errors import TemporaryError
from dart.core.module_command import module_command
from dart.run.child_task import in_fresh_process

pytestmark = pytest.mark.slow


def test_the_work_is_done_in_another_process_and_its_result_comes_back() -> None:
    assert in_fresh_process(os.getpid) != os.getpid()
    assert in_fresh_process(partial(sorted, [3, 1, 2])) == [1, 2, 3]


def test_an_error_of_the_work_is_raised_here() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        in_fresh_process(partial(int, "seven"))


def test_a_process_that_ends_without_a_result_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="ended with code 7"):
        in_fresh_process(partial(os._exit, 7))


def test_work_that_takes_too_long_is_ended_and_named() -> None:
    with pytest.raises(TemporaryError, match=r"^sleep was not done within 0\.5 s"):
        in_fresh_process(partial(time.sleep, 600), deadline_s=0.5)


def test_a_process_whose_parent_ended_before_it_began_does_no_work(tmp_path: Path) -> None:
    work = pickle.dumps(partial(Path.touch, tmp_path / "done"))
    ended_parent = str(os.getppid())
    command = [*module_command("dart.run.child_task"), ended_parent]
    assert subprocess.run(command, input=work, check=False).returncode == 1
    assert not (tmp_path / "done").exists()
