"""A system in a process of its own, two levels deep, whose leaves have processes of their own."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import psutil

from actors.actor import Actor
from actors.board import Board
from actors.process import die_with_parent, is_alive
from actors.system import ActorSystem, RootSpec
from supervision.child_spec import ChildSpec, SupervisorFlags
from supervision.supervisor import supervisor_args
from tests.fault.actors_under_test import PATIENCE_S, WORKER_LIMITS, eventually, pool

MARK = "DARTRL_TEST_MARK"
SLEEP = ("sleep", "100000")
MODULE = "tests.fault.keepers"

TREE = {
    "root": ("outer", "beside"),
    "outer": ("inner",),
    "inner": ("leaf-1", "leaf-2"),
    "beside": ("leaf-3",),
}
"""Who is whose parent."""

LEAVES = ("leaf-1", "leaf-2", "leaf-3")


class Keeper(Actor):
    """Has two processes: one asks for the parent's death signal itself, one is started as a browser is."""

    def on_start(self) -> None:
        own_pid = os.getpid()
        by_hand = subprocess.Popen(SLEEP, preexec_fn=lambda: die_with_parent(own_pid))
        by_launcher = subprocess.Popen(("setpriv", "--pdeathsig", "KILL", "--", *SLEEP))
        self.kept = (by_hand, by_launcher)


def below(name: str) -> set[str]:
    """Every actor below this one."""
    children = set(TREE.get(name, ()))
    return children.union(*(below(child) for child in children))


def root_spec() -> RootSpec:
    leaf_1, leaf_2, leaf_3 = (
        ChildSpec(id=name, actor=f"{MODULE}:Keeper", **WORKER_LIMITS) for name in LEAVES
    )
    outer = pool("outer", pool("inner", leaf_1, leaf_2))
    flags = SupervisorFlags(max_restarts=100, max_seconds=60.0)
    args = supervisor_args(flags, (outer, pool("beside", leaf_3)))
    return RootSpec(name="root", actor="supervision.supervisor:Supervisor", args=args)


def run_until_killed(folder: Path) -> None:
    """What the launching process does."""
    with ActorSystem(folder, folder / "mail", root_spec()) as system:
        system.wait(600)


class Launched:
    """A launcher in a process of its own; everything it starts bears its mark in its environment."""

    def __init__(self) -> None:
        self.mark = f"{MARK}={uuid.uuid4()}"
        self.run_dir = new_folder()
        name, _, value = self.mark.partition("=")
        self.process = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(self.run_dir)],
            env=os.environ | {name: value, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            eventually(self._has_admin, "there is an admin")
            self.board = Board(self.run_dir / "board")
            self.await_up()
        except BaseException:
            self.kill()
            raise

    def _has_admin(self) -> bool:
        assert self.process.poll() is None, "the launcher ended at its start"
        return (self.run_dir / "admin.pid").exists()

    def await_up(self) -> None:
        eventually(lambda: all(map(self.is_whole, LEAVES)), "all leaves keep two processes", self.explain)

    def is_whole(self, name: str) -> bool:
        """It takes work, and what it keeps has become what it shall be."""
        slot = self.board.find(name)
        if slot is None or not self.board.get(slot, "ready"):
            return False
        kept = self.kept(name)
        return len(kept) == 2 and all(map(_sleeps, kept))

    def pid(self, who: str) -> int:
        if who == "launcher":
            return self.process.pid
        if who == "admin":
            return int((self.run_dir / "admin.pid").read_text())
        slot = self.board.find(who)
        assert slot is not None
        return int(self.board.get(slot, "pid"))

    def loggers(self) -> set[int]:
        """Thespian's, beside the root below the admin."""
        return {child.pid for child in psutil.Process(self.pid("admin")).children()} - {self.pid("root")}

    def kept(self, leaf: str) -> set[int]:
        """The processes a leaf has."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return {child.pid for child in psutil.Process(self.pid(leaf)).children()}
        return set()

    def pids_below(self, who: str) -> set[int]:
        """Of the actors below it, and of what they keep; a leaf has only what it keeps."""
        actors = below(who)
        return {self.pid(name) for name in actors}.union(
            *(self.kept(leaf) for leaf in LEAVES if leaf in {who, *actors})
        )

    def marked(self) -> set[int]:
        """Every living process that bears the mark."""
        return {int(path.name) for path in Path("/proc").glob("[0-9]*") if self._is_marked(path)}

    def explain(self) -> str:
        return "\n".join(f"{row.name}: {row.state} {row.ready} {row.pid}" for row in self.board.rows())

    def _is_marked(self, process: Path) -> bool:
        try:
            return self.mark.encode() in (process / "environ").read_bytes().split(b"\0") and is_alive(
                int(process.name)
            )
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return False

    def kill(self) -> None:
        for pid in self.marked():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def close(self) -> None:
        self.kill()
        self.board.close()
        shutil.rmtree(self.run_dir, ignore_errors=True)


def new_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fault-", dir="/tmp"))  # the path of a socket is short
    (folder / "mail").mkdir()
    return folder


def _sleeps(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).name() == SLEEP[0]
    return False


if __name__ == "__main__":
    run_until_killed(Path(sys.argv[1]))
