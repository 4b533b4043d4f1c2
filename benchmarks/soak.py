"""Restarts without growth: children are killed by the batch, and afterwards nothing is more than before.

Counted before and after, when everybody is up: open files and private memory of the supervisor, the root,
Thespian's admin and its logger; files in the run directory and the mail directory; rows of the board; what
the supervisor's process keeps of dead children (Thespian's lists and all of Python's objects).

``python -m benchmarks.soak --restarts 100000`` prints a table, writes ``benchmarks/out/soak.json`` and exits
with 1 when something grew. Counting begins after a fifth of the restarts: a name keeps its last few crash
files, a log its last few hundred kilobytes, an interpreter the heap that a busy hour needs.
"""

import argparse
import dataclasses
import gc
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from actors.actor import Actor
from actors.board import ActorState, Board
from actors.system import ActorSystem, RootSpec
from supervision.child_spec import Backoff, ChildSpec, SupervisorFlags
from supervision.supervisor import Supervisor, supervisor_args, supervisor_spec

OUT = Path(__file__).parent / "out" / "soak.json"

PATIENCE_S = 60.0
CHILDREN = 20

LOOKS = 3
"""Times that the supervisor says what it keeps, for one count, which is the least: on a busy machine it may
still keep what belongs to children that just ended."""

GROWTH = {"fds": 2, "uss_kib": 1024, "objects": 1000, "kept": 2, "files": 2, "rows": 0}
"""What may be more than before, however many restarts there were. A log may just have been renamed."""


class Child(Actor):
    """Does nothing; it is there to be killed."""


class Counting(Supervisor):
    """A supervisor that writes down what its process keeps, in `kept.json` of the run directory."""

    def on_start(self) -> Any:
        self.every(1.0, self._write_kept)
        return super().on_start()

    def _write_kept(self) -> None:
        gc.collect()
        shell: Any = self.runtime
        thespian = shell._myRef
        kept = {
            "at_s": time.monotonic(),
            "objects": len(gc.get_objects()),
            "addresses": len(list(thespian._addrManager._managed)),
            "children": len(thespian._children),
            "processes": len(getattr(thespian, "_child_procs", ())),
            "letters": len(thespian._awaitingAddressUpdate._awt),
            "connections": len(thespian.transport._openSockets),
        }
        new = self.identity.run_dir / "kept.new"
        new.write_text(json.dumps(kept))
        new.replace(self.identity.run_dir / "kept.json")


def root_spec(children: int) -> RootSpec:
    flags = SupervisorFlags(max_restarts=10**9, max_seconds=1.0)
    at_once = Backoff(initial_s=0.0, max_s=0.0)
    specs = tuple(
        ChildSpec(id=f"child-{number}", actor="benchmarks.soak:Child", backoff=at_once)
        for number in range(children)
    )
    pool_flags = dataclasses.replace(flags, ordered=False)
    pool = dataclasses.replace(supervisor_spec("pool", pool_flags, specs), actor="benchmarks.soak:Counting")
    args = supervisor_args(flags, (pool,))
    return RootSpec(name="root", actor="supervision.supervisor:Supervisor", args=args)


class Soak:
    """A running system whose children are killed."""

    def __init__(self, system: ActorSystem, mail_dir: Path, children: int) -> None:
        self._system = system
        self._board: Board = system.board
        self._mail_dir = mail_dir
        self._names = [f"child-{number}" for number in range(children)]
        self.restarts = 0
        self.await_all({})

    def kill_all(self) -> None:
        """Every child once, all at once; until all are back."""
        before = {name: int(self._get(name, "incarnation")) for name in self._names}
        for name in self._names:
            os.kill(self._get(name, "pid"), signal.SIGKILL)
        self.await_all(before)
        self.restarts += len(self._names)

    def go_on_until(self, restarts: float) -> None:
        while self.restarts < restarts:
            self.kill_all()
        print(f"{self.restarts} restarts", file=sys.stderr)

    def await_all(self, before: dict[str, int]) -> None:
        await_true(lambda: not self._missing(before), lambda: f"not up again: {self._missing(before)}")

    def count(self) -> dict[str, int]:
        """What there is of everything."""
        looks = [self._kept() for _ in range(LOOKS)]
        counts = {name: min(look[name] for look in looks) for name in looks[0]}
        for who, pid in self._watched_pids().items():
            process = psutil.Process(pid)
            counts[f"fds {who}"] = process.num_fds()
            counts[f"uss_kib {who}"] = process.memory_full_info().uss // 1024
        counts["files run directory"] = sum(len(files) for _, _, files in os.walk(self._system.run_dir))
        counts["files mail directory"] = len(list(self._mail_dir.iterdir()))
        counts["rows board"] = len(self._board.rows())
        return counts

    def log_bytes(self) -> int:
        return sum(path.stat().st_size for path in (self._system.run_dir / "logs").iterdir())

    def _kept(self) -> dict[str, int]:
        file, now_s = self._system.run_dir / "kept.json", time.monotonic()
        read: dict[str, float] = {}

        def is_new() -> bool:
            read.update(json.loads(file.read_text()) if file.exists() else {})
            return read.get("at_s", 0.0) > now_s

        await_true(is_new, lambda: f"{file} was not written again")
        del read["at_s"]
        return {"objects" if name == "objects" else f"kept {name}": int(n) for name, n in read.items()}

    def _watched_pids(self) -> dict[str, int]:
        admin = int((self._system.run_dir / "admin.pid").read_text())
        root = int(self._get("root", "pid"))
        (logger,) = {child.pid for child in psutil.Process(admin).children()} - {root}
        return {"admin": admin, "logger": logger, "root": root, "pool": int(self._get("pool", "pid"))}

    def _missing(self, before: dict[str, int]) -> list[str]:
        return [name for name in self._names if not self._is_back(name, before.get(name, 0))]

    def _is_back(self, name: str, before: int) -> bool:
        slot = self._board.find(name)
        return (
            slot is not None
            and self._board.get(slot, "incarnation") > before
            and self._board.state(slot) is ActorState.RUNNING
            and bool(self._board.get(slot, "ready"))
        )

    def _get(self, name: str, field: str) -> Any:
        slot = self._board.find(name)
        assert slot is not None
        return self._board.get(slot, field)


def await_true(holds: Callable[[], bool], missing: Callable[[], str]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > give_up:
            raise TimeoutError(f"after {PATIENCE_S} s: {missing()}")
        time.sleep(0.01)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one run counted; `broken` judges it."""

    restarts: int
    children: int
    seconds: float
    counted_after: int
    before: dict[str, int]
    after: dict[str, int]
    log_bytes: int


def soak(restarts: int, children: int = CHILDREN) -> Report:
    """One run; at least `restarts`, in whole batches."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak-", dir="/tmp") as name:
        folder = Path(name)
        (folder / "mail").mkdir(mode=0o700)
        with ActorSystem(folder, folder / "mail", root_spec(children), prints_reports=False) as system:
            run = Soak(system, folder / "mail", children)
            run.go_on_until(restarts / 5)
            counted_after, before = run.restarts, run.count()
            for tenth in range(3, 11):
                run.go_on_until(restarts * tenth / 10)
            return Report(
                restarts=run.restarts,
                children=children,
                seconds=round(time.monotonic() - began_s, 1),
                counted_after=counted_after,
                before=before,
                after=run.count(),
                log_bytes=run.log_bytes(),
            )


def broken(report: Report) -> list[str]:
    """What grew, in words."""
    return [
        f"{name} grew from {before} to {report.after[name]}, by more than {GROWTH[name.split()[0]]}"
        for name, before in report.before.items()
        if report.after[name] - before > GROWTH[name.split()[0]]
    ]


def show(report: Report) -> None:
    print(f"{report.restarts} restarts of {report.children} children in {report.seconds} s")
    print(f"{'':24}{'after ' + str(report.counted_after):>14}{'at the end':>14}")
    for name, before in report.before.items():
        print(f"{name:24}{before:14}{report.after[name]:14}")
    print(f"{'log files, KiB':24}{'':14}{report.log_bytes // 1024:14}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--restarts", type=int, default=100_000)
    parser.add_argument("--children", type=int, default=CHILDREN)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    report = soak(options.restarts, options.children)
    show(report)
    found = broken(report)
    command = f"python -m benchmarks.soak --restarts {options.restarts} --children {options.children}"
    machine = {"python": platform.python_version(), "cores": os.cpu_count()}
    content = {"command": command, "machine": machine, "broken": found, **dataclasses.asdict(report)}
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(content, indent=2) + "\n")
    for line in found:
        print(f"GREW: {line}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
