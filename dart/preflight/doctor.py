"""The checks of `dartrl doctor`: of this machine, the installed programs and the data of a run.

Checks change nothing. Each reports what it found and, if something is wrong, what to do about it.
"""

import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from itertools import chain
from pathlib import Path

import psutil

from actors.errors import ActorError
from actors.orphans import still_running
from dart.config.config import Config
from dart.config.environment_kinds import KINDS
from dart.config.gpus import assign_gpus, gpus_here
from dart.core.errors import DartError
from dart.core.run_directory import RunPaths, lock_holder
from dart.environments.browser.environment import CHROMIUM
from dart.environments.leftovers import left_behind
from dart.inspect.formatting import size
from dart.preflight.disk_need import disk_need, existing_part
from dart.preflight.gpu_memory import of_gpus
from dart.preflight.requirements import (
    TRAIN_PACKAGES,
    absent_gpus,
    browser_version,
    missing_browser,
    missing_packages,
    missing_policy,
    unreadable_prompt,
)

GIB = 2**30
MIB = 2**20

DISK_LOW_BYTES = 2 * GIB
"""Free bytes below which the check of the disk gives a note. A day of the laptop job writes about 1 GiB."""

DISK_OUT_BYTES = 200 * MIB
"""Free bytes below which the check of the disk fails, whatever the size of the checkpoints."""

FILES_LOW = 4096
"""A limit of this many open files is enough: a supervisor opens two for each child, a browser a few dozen."""

SHARED_MEMORY = Path("/dev/shm")
SHARED_MEMORY_LOW_BYTES = GIB
"""Size of the shared memory below which the check gives a note. Docker gives 64 MiB unless it is asked for
more, and NCCL may fail to start with so little."""


class CheckVerdict(StrEnum):
    """The outcome of a check."""

    FINE = "fine"
    NOTE = "note"
    """The check found something worth knowing; nothing has to be done."""
    WRONG = "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check."""

    topic: str
    verdict: CheckVerdict
    found: str
    remedy: str = ""
    """What the user should do; empty if there is nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTarget:
    """What is checked: a configuration, ports and, if there is one, a run."""

    config: Config
    paths: RunPaths | None = None
    """The paths of the run; None if no run is checked."""
    ports: tuple[int, ...] = ()
    """TCP ports on loopback that should be free."""


Check = Callable[[CheckTarget], Iterator[CheckResult]]


def run_checks(target: CheckTarget, checks: tuple[Check, ...] | None = None) -> list[CheckResult]:
    """Run the checks and return their results, in the order of the checks."""
    return [found for check in checks or CHECKS for found in check(target)]


def fine(topic: str, found: str) -> CheckResult:
    return CheckResult(topic=topic, verdict=CheckVerdict.FINE, found=found)


def wrong(topic: str, found: str, remedy: str) -> CheckResult:
    return CheckResult(topic=topic, verdict=CheckVerdict.WRONG, found=found, remedy=remedy)


def note(topic: str, found: str, remedy: str = "") -> CheckResult:
    return CheckResult(topic=topic, verdict=CheckVerdict.NOTE, found=found, remedy=remedy)


def _problem(topic: str, problem: str) -> CheckResult:
    """Return the result for a message about a problem, split into what was found and the remedy.

    The remedy follows the first semicolon or, if there is none, the first colon. If there is neither, the
    whole message is both.
    """
    found, _, remedy = problem.partition("; " if "; " in problem else ": ")
    return wrong(topic, found, remedy or problem)


def _unless_missing(topic: str, missing: Iterator[str], found: Callable[[], str]) -> Iterator[CheckResult]:
    """Yield a failed result for each message in `missing`; if there is none, a good result with `found()`."""
    problems = list(missing)
    yield from (_problem(topic, problem) for problem in problems)
    if not problems:
        yield fine(topic, found())


# ---- what is installed ----


def python(_: CheckTarget) -> Iterator[CheckResult]:
    """Report the Python interpreter. It needs no check: pip installs dartrl only into supported versions."""
    yield fine("python", f"{platform.python_version()} at {sys.executable}")


def packages(target: CheckTarget) -> Iterator[CheckResult]:
    """Check that the libraries of the extra `train` are installed, and vLLM if it is configured."""
    return _unless_missing(
        "packages",
        missing_packages(target.config),
        lambda: ", ".join(f"{name} {metadata.version(name)}" for name in TRAIN_PACKAGES),
    )


def gpu(target: CheckTarget) -> Iterator[CheckResult]:
    """Report the graphics cards, whether the installed torch can use them, and named GPUs that are absent."""
    yield from (_problem("gpu", problem) for problem in absent_gpus(target.config))
    cards = ", ".join(of_gpus("name"))
    build = _version_of("torch")
    if not cards:
        yield note(
            "gpu", f"no card; torch {build} computes on the processor, for which the laptop job is made"
        )
    elif "+cpu" in build:
        remedy = "install the build of torch for your CUDA version (pytorch.org)"
        yield note("gpu", f"{cards}, which torch {build} cannot use", remedy)
    else:
        yield fine("gpu", f"{cards}, torch {build}")


def _version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


def browser(target: CheckTarget) -> Iterator[CheckResult]:
    """Check what the configured environments need. A browser is started to ask for its version."""
    environments = target.config.environments
    executable = environments.executable or CHROMIUM

    def found() -> str:
        if not KINDS[environments.kind].is_page:
            return f"environments of kind {environments.kind!r} need no browser"
        return f"{browser_version(executable)} at {executable}"

    return _unless_missing("browser", missing_browser(target.config), found)


def policy(target: CheckTarget) -> Iterator[CheckResult]:
    """Check the checkpoint that training starts from, and the prompt that the policy is shown."""
    missing = chain(missing_policy(target.config), unreadable_prompt(target.config))
    return _unless_missing("policy", missing, lambda: str(target.config.training.policy))


# ---- this machine ----


def disk(target: CheckTarget) -> Iterator[CheckResult]:
    """Check free space and the permission to write in the run directory or its nearest existing parent."""
    root = target.paths.root if target.paths else target.config.run.dir
    folder = existing_part(root)
    free = shutil.disk_usage(folder).free
    found = f"{free / GIB:.1f} GiB free at {folder}"
    need = disk_need(target.config, root)
    if need is not None and need.lacking_bytes:
        yield wrong("disk", str(need), need.remedy)
    elif free < DISK_OUT_BYTES:
        yield wrong("disk", found, "free some space, because a run on a full disk waits for space")
    elif free < DISK_LOW_BYTES:
        yield note("disk", found, "free some space before a long run, or lower training.checkpoints_kept")
    else:
        yield fine("disk", found)
    if not os.access(folder, os.W_OK):
        yield wrong("disk", f"{folder} cannot be written to", "choose another place with --run-dir")


def files(_: CheckTarget) -> Iterator[CheckResult]:
    """Check how many files a process may open. Only the hard limit counts: a run raises its soft
    limit to the hard limit."""
    import resource

    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= FILES_LOW:
        yield fine("files", f"a process may open {'any number of' if hard == -1 else hard} files")
    else:
        remedy = "raise the limit: 'ulimit -Hn 65536' as root, or LimitNOFILE= in the unit file"
        yield wrong(
            "files", f"a process may open only {hard} files; a supervisor of many children needs more", remedy
        )


def shared_memory(target: CheckTarget) -> Iterator[CheckResult]:
    """Check the size of /dev/shm, if processes of one machine exchange data between GPUs."""
    assigned = assign_gpus(target.config, gpus_here())
    if max(map(len, (assigned.trainer, *assigned.engines))) < 2 or not SHARED_MEMORY.is_dir():
        return
    total = shutil.disk_usage(SHARED_MEMORY).total
    found = f"{SHARED_MEMORY} has {size(total)}"
    if total >= SHARED_MEMORY_LOW_BYTES:
        yield fine("shared memory", found)
    else:
        remedy = "start the container with --ipc=host or --shm-size=8g, because NCCL may need it between GPUs"
        yield note("shared memory", found, remedy)


def ports(target: CheckTarget) -> Iterator[CheckResult]:
    """Check that the TCP ports given to the command are free."""
    for port in target.ports:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError as error:
                remedy = f"find its process with 'ss -ltnp sport = :{port}', or choose another port"
                yield wrong("ports", f"port {port} on 127.0.0.1: {error.strerror}", remedy)
            else:
                yield fine("ports", f"port {port} on 127.0.0.1 is free")


# ---- a run ----


def run_state(target: CheckTarget) -> Iterator[CheckResult]:
    """Report whether the run is running; if not, report processes and machines that are left over from it."""
    if target.paths is None:
        yield note("run", "no run to check; name one with --run-dir")
        return
    root = target.paths.root
    found = lock_holder(root)
    is_led = found is not None and (not found.pid or found.is_shown_here)
    led_by = f"is running as process {found.pid}" if found and found.pid else "is being started"
    yield fine("run", f"{root} {led_by if is_led else 'is not running'}")
    orphans = [] if is_led else _orphans(target.paths)
    for name, orphan in orphans:
        yield wrong(
            "processes",
            f"{name} (process {orphan}) is left over from the run in {root}",
            f"the next start of the run ends this process; or end it now with 'kill -9 {orphan}'",
        )
    if not orphans:
        yield fine("processes", "no process is left over from an earlier start of the run")
    for machines in () if is_led or orphans else left_behind(target.config, target.paths):
        yield wrong(
            "machines",
            f"environments of the run have left {machines}, which may still run",
            f"give them back with `dartrl down {RunPaths(root).option}`; the next start of the run does so, "
            "too",
        )


def _orphans(paths: RunPaths) -> list[tuple[str, int]]:
    """Return the name and pid of each process that is left over from a run.

    Actors are found by the run's list of processes, browsers by the folder of their profile."""
    try:
        actors = [(one.name, one.pid) for one in still_running(paths.root / "processes.json", paths.board)]
    except (ActorError, OSError):
        actors = []
    known = {pid for _, pid in actors}
    return actors + [("a browser", pid) for pid in _users_of(paths.scratch) if pid not in known]


def _users_of(folder: Path) -> Iterator[int]:
    """Yield the pids of processes with a path in this folder on their command line."""
    wanted = f"{folder.resolve()}/"
    for process in psutil.process_iter(["cmdline"]):
        if process.pid != os.getpid() and any(wanted in word for word in process.info["cmdline"] or ()):
            yield process.pid


def record(target: CheckTarget) -> Iterator[CheckResult]:
    """Check that every issued rollout has one fate, and that the rows of the record agree with each other."""
    from dart.store.reader import StoreReader

    if target.paths is None:
        return
    try:
        with StoreReader(target.paths.record) as store:
            books, damage = store.conservation(), store.integrity(target.config.curation.staleness)
    except DartError as error:
        yield _problem("record", str(error))
        return
    if books.holds:
        yield fine("books", str(books))
    else:
        yield wrong("books", str(books), "rollouts were lost: keep the run directory, and report this defect")
    yield from (wrong("record", str(one), one.remedy) for one in damage)
    if not damage:
        yield fine("record", "the record is consistent; --data also checks the screenshots")


def checkpoint(target: CheckTarget) -> Iterator[CheckResult]:
    """Check the newest checkpoint, from which the run continues when it is resumed."""
    from dart.store.integrity import check_checkpoints

    if target.paths is None:
        return
    try:
        newest, damage = check_checkpoints(target.paths, full=False)
    except DartError:
        return  # the check of the record reports it
    yield from (wrong("checkpoint", str(one), one.remedy) for one in damage)
    if newest > 0 and not damage:
        yield fine("checkpoint", f"the checkpoint of the newest version, {newest}, is undamaged")


CHECKS: tuple[Check, ...] = (
    python,
    packages,
    gpu,
    browser,
    policy,
    disk,
    files,
    shared_memory,
    ports,
    run_state,
    record,
    checkpoint,
)
