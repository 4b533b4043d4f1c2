"""`dartrl up` and `dartrl down`: start and end a run as a daemon."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dart.cli.exit_codes import ExitCode, code_of_signal, end, errors_as_exit_codes
from dart.cli.options import CONFIGURATION, NewRunDir, Overrides, RunDir, chosen, is_address
from dart.cli.output import say, say_left_out
from dart.cli.train import training_config

if TYPE_CHECKING:
    from dart.config.cluster import ClusterFile
    from dart.config.config import Config
    from dart.config.hub import HubPolicy
    from dart.core.run_directory import LockHolder, RunPaths
    from dart.inspect.result import TrainResult
    from dart.run.site import RunSite

UP_WAIT_S = 180.0
"""Seconds that `up --detach` waits by default until the run is up. A slower run continues to start."""

DOWN_WAIT_S = 120.0
"""Seconds that `down` waits by default until the run has drained, checked its data and ended."""

POLL_S = 0.1


def up(
    config: Annotated[
        Path | None, typer.Argument(help=f"{CONFIGURATION} Default: that of the run in the run directory.")
    ] = None,
    overrides: Overrides = None,
    run_dir: NewRunDir = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue a run; never begin one. If the machine of a run is lost and its record is on a "
            "server, another machine can continue the run and makes a run directory for it.",
        ),
    ] = False,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach",
            "-d",
            help="Start the run in the background and return when it is up. Its log is logs/daemon.jsonl in "
            "the run directory.",
        ),
    ] = False,
    wait_s: Annotated[
        float | None,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            min=0.0,
            help="With --detach: wait at most this long until the run is up; exit code 75 if it still starts "
            f"then. Default: {UP_WAIT_S:g}.",
        ),
    ] = None,
    log_file: Annotated[
        Path | None,
        typer.Option(
            "--log",
            metavar="FILE",
            help="Log to this file, one JSON object per line, instead of standard error. When the file "
            "reaches `telemetry.daemon_log_bytes`, it is renamed to FILE.1 and a new file begins. FILE must "
            "not be directly in the run directory.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Start nothing; show what would be started, the memory it takes, and what is missing.",
        ),
    ] = False,
    gpu_gib: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            help="With --dry-run: memory of each GPU in GiB, to plan for another machine than this one.",
        ),
    ] = None,
) -> None:
    """Run as a daemon: continue the run in the run directory, or begin one there.

    The daemon logs to standard error; if that is not a terminal, each line is a JSON object.

    SIGTERM or Ctrl-C drains the run: nothing new begins, episodes end or are parked, and the exit code is 0.
    A second signal ends the run at once. Closing the terminal also drains, unless the daemon was started with
    `nohup`. Any other SIGHUP reloads the configuration.

    After a crash, the same command continues the run. If the machine of the run is lost and its record is on
    a server, give the same file and `--resume` on another machine.

    **Examples**

    * `dartrl up laptop --run-dir runs/laptop`
    * `dartrl up laptop --detach && dartrl status`
    * `dartrl up osworld-uitars-7b --detach --wait 1800`
    * `dartrl up laptop --dry-run`
    * `dartrl up one-gpu-miniwob --dry-run --gpu-gib 24`
    * `dartrl up cluster --dry-run`
    * `dartrl up cluster.toml --resume`
    """
    from dart.config.cluster import is_cluster_file

    _refuse_option("--wait", wait_s, "--detach", is_given=detach)
    _refuse_option("--gpu-gib", gpu_gib, "--dry-run", is_given=dry_run)
    if config is not None and is_cluster_file(config):
        found = _cluster_file(config, overrides or [], run_dir)
        _refuse_log_among_files(found.run.run.dir, log_file)
        if dry_run:
            from dart.cli.cluster import show_cluster_plan

            show_cluster_plan(found, gpu_gib)
            return
        with errors_as_exit_codes(found.run.run.dir):
            if detach and not found.cluster.engine.kubernetes.image:
                words = _arguments(config, overrides or [], run_dir, resume=resume)
                _detach(found.run, log_file, words, wait_s, resume=resume, is_local=False)
            else:
                _up_on_cluster(found, log_file, resume=resume)
        return
    settings = training_config(config, overrides or [], run_dir, resume=config is None)
    _refuse_log_among_files(settings.run.dir, log_file)
    if config is None:
        run_dir = settings.run.dir  # a later read must not take the configuration of a run that began since
    read = partial(training_config, config, overrides or [], run_dir, resume=config is None)
    if dry_run:
        _show_plan(settings, gpu_gib, resume=resume)
        return
    with errors_as_exit_codes(settings.run.dir):
        if detach:
            words = _arguments(config, overrides or [], run_dir, resume=resume)
            _detach(settings, log_file, words, wait_s, resume=resume)
        else:
            _up(settings, read, log_file, resume=resume)


def down(
    now: Annotated[bool, typer.Option("--now", help="Do not drain: end everything at once.")] = False,
    wait_s: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            min=0.0,
            show_default=False,
            help="Wait at most this long until the run has ended; exit code 75 if it still runs then. "
            f"Default: {DOWN_WAIT_S:g}.",
        ),
    ] = DOWN_WAIT_S,
    run_dir: RunDir = None,
) -> None:
    """Drain a run, end it and wait until it has ended. With `--now`, end it without draining.

    Says what the next start continues from. Nothing that was stored is lost. A drain may take as long as the
    `shutdown_s` of the run's actors permits. It goes on when this command no longer waits; the same command
    waits for it again.

    **Examples**

    * `dartrl down`
    * `dartrl down --wait 1800`
    * `dartrl down --now --run-dir runs/laptop`
    """
    from dart.core.errors import NotRunningError, SilentError, TemporaryError
    from dart.core.run_directory import lock_holder, still_held
    from dart.run.ending import still_runs

    if is_address(run_dir):
        _down_elsewhere(chosen(run_dir), wait_s, now=now)
        return
    root = chosen(run_dir)
    found = lock_holder(root)
    if found is None:
        raise NotRunningError(f"the run in {root} is not running")
    if not found.pid:
        raise SilentError(
            f"{root} is locked by a process that has not written its pid yet; try again in a moment"
        )
    if not _end_process(root, found, wait_s, now=now):
        raise TemporaryError(still_runs(found.pid, f"in {root}", wait_s))
    if not _is_released(root, found):
        raise SilentError(still_held(root, found.pid))
    say(f"the run in {root} has ended")
    _say_what_is_left(root)


def _refuse_option(name: str, value: float | None, needed: str, *, is_given: bool) -> None:
    """Raise typer.BadParameter if an option was given without the option that it belongs to."""
    if value is not None and not is_given:
        raise typer.BadParameter(f"it belongs to {needed}; add {needed} or leave {name} out", param_hint=name)


def _refuse_log_among_files(root: Path, log_file: Path | None) -> None:
    """Raise typer.BadParameter for a log directly in the run directory.

    A new run would take it for a file of another program, and its name may be that of a file of the run.
    """
    if log_file is not None and os.path.realpath(log_file.parent) == os.path.realpath(root):
        raise typer.BadParameter(
            f"{log_file} would be among the files of the run; name a file elsewhere. With --detach and "
            f"without --log, the log is {root / 'logs' / 'daemon.jsonl'}",
            param_hint="--log",
        )


def _say_what_is_left(root: Path) -> None:
    """Say what the next start of a run will find; nothing if its record cannot be read."""
    from dart.core.run_directory import RunPaths
    from dart.run.run_record import look_back
    from dart.store.errors import StoreError

    with contextlib.suppress(StoreError):
        say(f"the next start: {look_back(RunPaths(root)).text()}")


def _down_elsewhere(root: Path, wait_s: float, *, now: bool) -> None:
    """End the run on another machine whose mirror is the folder `root`."""
    from dart.core.run_directory import RunPaths
    from dart.run.mirror import mirror_in

    mirror = mirror_in(root)
    assert mirror is not None
    mirror.end(now=now, deadline_s=wait_s)
    say(f"the run in {RunPaths(root).title} has ended")


def _cluster_file(config: Path, overrides: Sequence[str], run_dir: Path | None) -> "ClusterFile":
    from dart.config.cluster import load_cluster
    from dart.config.layers import overrides_of

    return load_cluster(config, [*overrides, *overrides_of({"run.dir": run_dir})])


def _up_on_cluster(found: "ClusterFile", log_file: Path | None, *, resume: bool) -> None:
    from dart.cli.cluster import say_left_out_of_cluster
    from dart.cluster.connection import require_ray
    from dart.core.run_directory import RunPaths
    from dart.preflight.hub_fetch import fetch_if_allowed

    if found.cluster.engine.kubernetes.image:
        from dart.cluster.engine_start import write_job_file

        file = write_job_file(found, RunPaths(found.run.run.dir), resume=resume)
        say(f"nothing was started; start the run in the cluster with: kubectl apply -f {file}")
        return
    require_ray()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a run on a cluster does not end with its terminal
    _begin_or_continue(found.run, resume=resume)
    fetch_if_allowed(found.run, say)
    from dart.cluster.site import on_cluster

    with on_cluster(found) as site:  # probes what every node needs
        say_left_out_of_cluster(found.run)
        _run_daemon(found.run, None, log_file, site)


def _begin_or_continue(settings: "Config", *, resume: bool) -> None:
    """Raise an error if the start would fail at once. With `resume`, take over a run with a lost machine."""
    from dart.core.run_directory import RunPaths, refuse_at_once, refuse_untrained
    from dart.run.other_control_node import is_taken_over, refuse_running_elsewhere, take_over

    paths = RunPaths(settings.run.dir)
    was_here = paths.config.exists()
    if resume and is_taken_over(settings, paths):
        take_over(settings, paths)
    refuse_at_once(paths, resume=resume or was_here)
    refuse_untrained(paths)
    if was_here:  # a takeover has waited for the other machine already
        refuse_running_elsewhere(settings, paths)


def _up(
    settings: "Config", read: "Callable[[], Config]", log_file: Path | None, *, resume: bool = False
) -> None:
    from dart.preflight.hub_fetch import fetch_if_allowed
    from dart.preflight.requirements import require_installation

    # The daemon handles SIGHUP only while the tree is up; before and after, it must not end the process.
    outlives_terminal = signal.signal(signal.SIGHUP, signal.SIG_IGN) is signal.SIG_IGN
    _begin_or_continue(settings, resume=resume)
    fetch_if_allowed(settings, say)
    require_installation(settings)
    say_left_out(settings)
    _run_daemon(settings, read, log_file, outlives_terminal=outlives_terminal)


def _run_daemon(
    settings: "Config",
    read: "Callable[[], Config] | None",
    log_file: Path | None,
    site: "RunSite | None" = None,
    *,
    outlives_terminal: bool = False,
) -> None:
    from dart.core.run_directory import RunPaths
    from dart.run import app
    from dart.run.daemon import Daemon
    from dart.web.auth import PAGE_IS_OPEN, is_open_here

    paths = RunPaths(settings.run.dir)
    log = _log(log_file, settings.telemetry.daemon_log_bytes)
    page = {"page": PAGE_IS_OPEN} if is_open_here(settings.web) else {}
    log.info("daemon_started", pid=os.getpid(), run_dir=str(paths.root), **page)
    with Daemon(
        paths,
        log,
        outlives_terminal=outlives_terminal,
        output_bytes=settings.telemetry.daemon_log_bytes,
    ) as daemon:
        result = app.train(settings, resume=paths.config.exists(), listener=daemon, reread=read, site=site)
    _end(result)


def _end(result: "TrainResult") -> None:
    """End the command with an exit code if the run failed, or ended by a signal before it was drained."""
    if result.failure:
        end(result.failure, ExitCode.FAILED)
    if result.stopped_by is not None and not result.is_drained:
        end(
            "the run ended before it was drained; continue it with `dartrl up`",
            code_of_signal(result.stopped_by),
        )


class _StandardError:
    """Standard error as the file of a daemon's log. If a write fails (closed terminal, full disk), the line
    is lost and the daemon continues."""

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()

    def flush(self) -> None:
        """Do nothing, because `write` flushes each line."""


def _log(file: Path | None, limit_bytes: int) -> Any:
    """Configure structured logging for the whole process, and return a logger.

    file          None: log to standard error
    limit_bytes   size at which the file is renamed and a new one begins
    """
    import structlog

    from actors.log import log_to, to_json

    if file is not None:
        log_to(file, limit_bytes)
        return structlog.get_logger()
    processors = to_json()
    if sys.stderr.isatty():
        processors[-2:] = [structlog.dev.ConsoleRenderer()]
    structlog.configure(
        processors=processors,
        logger_factory=structlog.WriteLoggerFactory(file=_StandardError()),  # type: ignore[arg-type]  # structlog only writes to it
    )
    return structlog.get_logger()


# ---- what would be started ----


def _show_plan(settings: "Config", gpu_gib: float | None, *, resume: bool) -> None:
    import psutil

    from dart.cli.gpu_plan import lines_of_this_machine
    from dart.config.gpus import assign_gpus, gpus_here
    from dart.core.run_directory import RunPaths
    from dart.preflight.disk_need import disk_lines, disk_need
    from dart.preflight.hub_fetch import fetched_by_start
    from dart.preflight.idle_environments import idle_lines
    from dart.preflight.memory import memory_lines
    from dart.preflight.requirements import CHECKS, missing_policy, require_installation

    say(_what_it_would_do(settings, RunPaths(settings.run.dir), resume=resume))
    say("\n".join([*_tree_lines(settings), *idle_lines(settings)]))
    if lines := lines_of_this_machine(settings, gpu_gib):
        say("\n".join(lines))
    assignment = assign_gpus(settings, gpus_here())
    say("\n".join(memory_lines(settings, psutil.virtual_memory().available, assignment)))
    need = disk_need(settings, settings.run.dir)
    if need is not None:
        say("\n".join(disk_lines(need)))
    fetched = fetched_by_start(settings)
    require_installation(settings, [one for one in CHECKS if fetched is None or one is not missing_policy])
    say_left_out(settings)
    say(_all_is_there(gpu_gib, fetched))


def _all_is_there(gpu_gib: float | None, fetched: "HubPolicy | None") -> str:
    """Say that the run has what it needs, and what was not looked for.

    fetched   the policy that the start fetches; None if it fetches none
    """
    notes = []
    if gpu_gib is not None:
        notes.append(f"GPUs of {gpu_gib:g} GiB were assumed, not looked for")
    if fetched is not None:
        notes.append(f"{fetched} will be fetched into {fetched.folder}")
    return "; ".join([f"everything{' else' if notes else ''} that the run needs is there", *notes])


def _what_it_would_do(settings: "Config", paths: "RunPaths", *, resume: bool = False) -> str:
    """Return one line that says what a start would do: begin a run, or continue one.

    Raises RunDirectoryError or DiskError if the start would fail at once.
    """
    from dart.core.run_directory import refuse_at_once, refuse_untrained
    from dart.run.other_control_node import is_taken_over, refuse_nothing_to_take_over
    from dart.run.run_record import is_interrupted_start, refuse_without_record

    if resume and is_taken_over(settings, paths):
        refuse_nothing_to_take_over(settings, paths)
        return f"would continue the run of the record {settings.run.record} in {paths.root}"
    is_resumed = resume or paths.config.exists()
    refuse_at_once(paths, resume=is_resumed)
    refuse_untrained(paths)
    if is_resumed:
        refuse_without_record(settings, paths)
    elif settings.run.record:  # a record on a server; `refuse_at_once` has checked one in the directory
        is_interrupted_start(paths.record_at(settings.run.record), paths)
    return f"would {'continue the run in' if is_resumed else 'begin a run in'} {paths.root}"


def _tree_lines(settings: "Config") -> list[str]:
    """Return the supervision tree as indented lines, with one line for all children of a pool."""
    from dart.config.environment_kinds import KINDS
    from dart.run.definition import supervisors
    from dart.run.tree import root_spec
    from supervision.child_spec import ChildType

    tree = supervisors(root_spec(settings, {}))
    lines = [f"root  {tree['root'].flags.strategy}  {_budget(tree['root'].flags)}"]
    for id_, spec in tree["root"].children.items():
        if spec.type is not ChildType.SUPERVISOR:
            lines.append(f"  {id_}  {spec.restart}")
            continue
        names = list(tree[id_].children)
        lines.append(f"  {id_}  {tree[id_].flags.strategy}  {_budget(tree[id_].flags)}")
        lines.append(
            f"    {names[0]} … {names[-1]}  {len(names)} actors" if len(names) > 1 else f"    {names[0]}"
        )
    actors = sum(len(one.children) for one in tree.values()) + 1
    browsers = settings.environments.count if KINDS[settings.environments.kind].is_page else 0
    return [*lines, f"{actors} actors, {browsers} browsers"]


def _budget(flags: Any) -> str:
    return f"{flags.max_restarts} restarts in {flags.max_seconds:g} s"


# ---- detached ----


def _detach(
    settings: "Config",
    log_file: Path | None,
    arguments: Sequence[str],
    wait_s: float | None,
    *,
    resume: bool = False,
    is_local: bool = True,
) -> None:
    """Start `dartrl up` with these arguments in a process of its own, and wait until the run is up.

    arguments   words of the command line after `up`, without --detach, --wait and --log
    wait_s      longest wait; UP_WAIT_S if it is None
    is_local    whether the whole run is on this machine, so that what the run needs is fetched and checked
                here
    """
    import subprocess

    from dart.core.run_directory import RunPaths, make_private
    from dart.preflight.hub_fetch import fetch_if_allowed
    from dart.preflight.requirements import require_installation
    from dart.web.auth import PAGE_IS_OPEN, is_open_here

    paths = RunPaths(settings.run.dir.resolve())
    _what_it_would_do(settings, paths, resume=resume)
    if is_local:
        fetch_if_allowed(settings, say)
        require_installation(settings)
        say_left_out(settings)
    make_private(paths.root, paths.logs)
    log = log_file or paths.daemon_log
    began = {file: file.stat().st_size if file.exists() else 0 for file in (log, paths.daemon_output)}
    with paths.daemon_output.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "dart", "up", *arguments, "--log", str(log)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    code = _await_up(paths.root, process.poll, UP_WAIT_S if wait_s is None else wait_s)
    if code:
        end(
            "\n".join(["the run did not come up:", *filter(None, map(_new_text, began, began.values()))]),
            next((known for known in ExitCode if known == code), ExitCode.FAILED),
        )
    state = "is up" if code is None else "has ended already"
    say(f"the run in {paths.root} {state}, process {process.pid}; its log is {log}")
    if is_open_here(settings.web):
        say(PAGE_IS_OPEN)


def _new_text(file: Path, began_bytes: int) -> str:
    """Return the text of a file after its first `began_bytes`; the whole text if the file is shorter."""
    content = file.read_bytes() if file.exists() else b""
    return content[began_bytes if len(content) >= began_bytes else 0 :].decode(errors="replace").strip()


def _arguments(
    config: Path | None, overrides: Sequence[str], run_dir: Path | None, *, resume: bool
) -> list[str]:
    sets = [word for override in overrides for word in ("--set", override)]
    place = ["--run-dir", str(run_dir)] if run_dir else []
    return [*([str(config)] if config else []), *sets, *place, *(["--resume"] if resume else [])]


def _await_up(root: Path, poll: Callable[[], int | None], wait_s: float) -> int | None:
    """Wait until the root supervisor answers, or until the process of the run ends.

    poll   returns the exit code of the process; None while it runs
    Returns None if the supervisor answers, else the exit code of the process. Raises TemporaryError if
    neither happens within `wait_s`.
    """
    from dart.core.errors import NotRunningError, SilentError, TemporaryError
    from dart.run.control_protocol import ControlOutcome, Ping
    from dart.run.control_socket import request

    give_up_s = time.monotonic() + wait_s
    while (code := poll()) is None:
        try:
            if request(root, Ping()).outcome is ControlOutcome.DONE:
                return None
        except (NotRunningError, SilentError):
            pass  # the control endpoint is not up yet
        if time.monotonic() > give_up_s:
            raise TemporaryError(
                f"the run in {root} is not up after {wait_s:g} s and is still starting; "
                "`dartrl status` shows its progress, `dartrl down --now` ends it, "
                "and `dartrl up --detach --wait SECONDS` waits for longer at the next start"
            )
        time.sleep(POLL_S)
    return code


# ---- down ----


def _end_process(root: Path, found: "LockHolder", wait_s: float, *, now: bool) -> bool:
    """Ask the main process of a run to end, and return whether it ended within `wait_s`.

    How it is asked: `dart.run.ending.ask_to_end`. The end is read from a pidfd, because the pid stays in
    use until the parent of the process collects its exit code. A process that is not shown here gets no
    signal and counts as ended, because its pid may be that of another process.
    """
    import select

    from dart.core.run_directory import RunPaths
    from dart.run.ending import ask_to_end

    try:
        fd = os.pidfd_open(found.pid)
    except ProcessLookupError:
        return True
    try:
        if not found.is_shown_here:
            return True
        ask_to_end(RunPaths(root), fd, now=now)
        return bool(select.select([fd], [], [], wait_s)[0])
    except ProcessLookupError:
        return True
    finally:
        os.close(fd)


def _is_released(root: Path, found: "LockHolder") -> bool:
    """Wait until a run has released its lock, at most ORPHANS_END_S, and return whether it has."""
    from dart.core.run_directory import ORPHANS_END_S, lock_holder

    give_up_s = time.monotonic() + ORPHANS_END_S
    while lock_holder(root) == found:  # another holder is the next start
        if time.monotonic() > give_up_s:
            return False
        time.sleep(POLL_S)
    return True
