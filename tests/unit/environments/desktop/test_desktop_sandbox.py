"""The sandbox's command line, the window manager's configuration, the memory limit, what is not installed."""

import asyncio
import gc
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dart.environments.desktop import memory, requirements
from dart.environments.desktop.memory import MemoryLimit
from dart.environments.desktop.openbox import openbox_rc
from dart.environments.desktop.sandbox import HOME, await_exit, kill, sandbox_command
from dart.environments.desktop.sandbox import PASSWD as PASSWD_TEXT

PASSWD = Path("/run/passwd")


def pairs(command: list[str], option: str, values: int = 1) -> list[tuple[str, ...]]:
    return [
        tuple(command[index + 1 : index + 1 + values]) for index, part in enumerate(command) if part == option
    ]


def test_a_sandbox_dies_with_whoever_started_it_and_is_alone() -> None:
    command = sandbox_command(["true"], readable=[], passwd=PASSWD)
    for option in ("--die-with-parent", "--unshare-pid", "--unshare-net", "--unshare-user", "--clearenv"):
        assert option in command
    assert command[-2:] == ["--", "true"]


def test_the_network_is_shared_only_where_that_is_asked_for() -> None:
    assert "--unshare-net" not in sandbox_command(["true"], readable=[], passwd=PASSWD, shares_network=True)


def test_the_home_is_empty_in_memory_and_of_one_size() -> None:
    command = sandbox_command(["true"], readable=[], passwd=PASSWD)
    at = command.index(HOME, command.index("--clearenv") + 6)
    assert ("HOME", HOME) in pairs(command, "--setenv", 2)
    assert (HOME,) in pairs(command, "--tmpfs")
    assert command[command.index("--size") + 1] == str(128 * 2**20)
    assert at


def test_only_what_is_asked_for_is_readable_and_nothing_twice() -> None:
    readable = [Path("/srv/venv"), Path("/srv/repo/dart"), Path("/srv/venv")]
    command = sandbox_command(["true"], readable=readable, passwd=PASSWD)
    bound = [source for source, _ in pairs(command, "--ro-bind", 2)]
    assert bound == ["/srv/repo/dart", "/srv/venv", str(PASSWD)]
    assert not pairs(command, "--bind")


def test_a_folder_within_another_one_or_the_system_is_bound_with_it_alone() -> None:
    """Bubblewrap cannot mount below a mount through an absolute link, such as /opt/app/current."""
    readable = [Path("/srv/app"), Path("/srv/app/current/.venv"), Path("/opt/python"), Path("/srv/apple")]
    command = sandbox_command(["true"], readable=readable, passwd=PASSWD)
    bound = [source for source, _ in pairs(command, "--ro-bind", 2)]
    assert bound == ["/srv/app", "/srv/apple", str(PASSWD)]


def test_the_only_user_of_a_sandbox_is_its_own() -> None:
    assert PASSWD_TEXT.split(":")[:3] == ["user", "x", "1000"]


def test_the_configuration_of_the_window_manager_is_xml() -> None:
    root = ElementTree.fromstring(openbox_rc().encode())
    space = "{http://openbox.org/3.4/rc}"
    assert len(root.findall(f"{space}applications/{space}application")) == 5


def test_what_is_not_installed_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements.shutil, "which", lambda program: None if program == "Xvfb" else "/bin/x")
    monkeypatch.setattr(requirements, "find_spec", lambda module: None if module == "mss" else object())
    assert requirements.missing_for_desktops() == ["Xvfb (Debian package xvfb)", "the Python package mss"]


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the memory group of this process."""
    monkeypatch.setattr(memory, "_parent_of", lambda root: (tmp_path, "memory.max"))
    return tmp_path


def test_a_limit_is_a_group_with_the_processes_in_it(group: Path) -> None:
    limit = MemoryLimit("env-000", 2**20)
    limit.take([1, 2])
    (made,) = group.iterdir()
    assert made.name == f"dartrl-env-000-{os.getpid()}"
    assert (made / "memory.max").read_text() == str(2**20)
    assert (made / "cgroup.procs").read_text() == "2"  # the kernel takes them one by one


def test_descendants_that_begin_while_the_others_are_taken_are_taken_too(
    group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = iter([[7], [7, 8], [7, 8]])

    class Process:
        def __init__(self, pid: int) -> None:
            self.pid = pid

        def children(self, recursive: bool) -> list["Process"]:
            return [Process(pid) for pid in next(below)]

    taken: list[int] = []
    monkeypatch.setattr(memory.psutil, "Process", Process)
    monkeypatch.setattr(MemoryLimit, "take", lambda self, pids: taken.extend(pids))
    MemoryLimit("env-000", 2**20).take_tree(1)
    assert taken == [1, 7, 8]


def test_an_empty_group_of_this_process_goes_with_the_next_limit(group: Path) -> None:
    left = group / f"dartrl-score-{os.getpid()}"
    left.mkdir()
    MemoryLimit("other", 2**20).take([1])
    assert not left.exists()


def test_without_a_limit_there_is_no_group(group: Path) -> None:
    limit = MemoryLimit("env-000", 0)
    limit.take([1])
    assert not list(group.iterdir())


def test_without_rights_there_is_no_limit_and_no_failure() -> None:
    root = Path(tempfile.gettempdir()) / "no such mount"
    limit = MemoryLimit("env-000", 2**20, root=root)
    limit.take([1])
    limit.release()
    assert not root.exists()


def test_groups_that_killed_environments_left_are_removed(group: Path) -> None:
    left = group / "dartrl-env-000-999999999"
    left.mkdir()
    MemoryLimit("env-001", 2**20).take([1])
    assert not left.exists()
    shutil.rmtree(group)


def test_a_loop_may_end_while_a_descendant_of_a_killed_sandbox_still_holds_its_pipes() -> None:
    descendant = "import time; time.sleep(60)"
    parent = (
        f"import subprocess, sys, time; process = subprocess.Popen([sys.executable, '-c', {descendant!r}]); "
        "print(process.pid, flush=True); time.sleep(60)"
    )

    async def killed() -> int:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", parent), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        async with asyncio.timeout(60.0):
            pid = int(await process.stdout.readline())
        kill(process)
        await await_exit(process, within_s=0.2)
        return pid

    unraisable: list[object] = []
    before, sys.unraisablehook = sys.unraisablehook, unraisable.append
    try:
        descendant_pid = asyncio.run(killed())
        gc.collect()
    finally:
        sys.unraisablehook = before
    os.kill(descendant_pid, signal.SIGKILL)
    assert unraisable == []
