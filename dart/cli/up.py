"""`dartrl up`: run as a daemon, in this process or in the background."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dart.cli.daemon_log import log_of_daemon
from dart.cli.detached import UP_WAIT_S, arguments_of_up, start_detached
from dart.cli.down import say_what_is_left
from dart.cli.exit_codes import ExitCode, end, end_stopped, errors_as_exit_codes, signal_words
from dart.cli.options import CONFIGURATION, NewRunDir, Overrides
from dart.cli.output import say, say_left_out
from dart.cli.start_plan import show_plan
from dart.cli.train import training_config

if TYPE_CHECKING:
    from dart.config.cluster import ClusterFile
    from dart.config.config import Config
    from dart.inspect.result import TrainResult
    from dart.run.site import RunSite


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
                words = arguments_of_up(config, overrides or [], run_dir, resume=resume)
                start_detached(found.run, log_file, words, wait_s, resume=resume, is_local=False)
            else:
                _up_on_cluster(found, log_file, resume=resume)
        return
    settings = training_config(config, overrides or [], run_dir, resume=config is None)
    _refuse_log_among_files(settings.run.dir, log_file)
    if config is None:
        run_dir = settings.run.dir  # a later read must not take the configuration of a run that began since
    read = partial(training_config, config, overrides or [], run_dir, resume=config is None)
    if dry_run:
        show_plan(settings, gpu_gib, resume=resume)
        return
    with errors_as_exit_codes(settings.run.dir):
        if detach:
            words = arguments_of_up(config, overrides or [], run_dir, resume=resume)
            start_detached(settings, log_file, words, wait_s, resume=resume)
        else:
            _up(settings, read, log_file, resume=resume)


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


def _cluster_file(config: Path, overrides: Sequence[str], run_dir: Path | None) -> "ClusterFile":
    from dart.config.cluster import load_cluster
    from dart.config.layers import overrides_of

    return load_cluster(config, [*overrides, *overrides_of({"run.dir": run_dir})])


def _up_on_cluster(found: "ClusterFile", log_file: Path | None, *, resume: bool) -> None:
    from dart.cli.cluster import say_left_out_of_cluster
    from dart.cluster.connection import require_ray
    from dart.config.bundled import configuration_file
    from dart.core.run_directory import RunPaths, keep_cluster_file, locked
    from dart.preflight.hub_fetch import fetch_if_allowed

    paths = RunPaths(found.run.run.dir)
    if found.cluster.engine.kubernetes.image:
        from dart.cluster.engine_start import write_job_file

        file = write_job_file(found, paths, resume=resume)
        say(f"nothing was started; start the run in the cluster with: kubectl apply -f {file}")
        return
    require_ray()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a run on a cluster does not end with its terminal
    _begin_or_continue(found.run, resume=resume)
    fetch_if_allowed(found.run, say)
    from dart.cluster.site import on_cluster

    # The lock is held from here on, because joining may take long, and other commands must find this process.
    with locked(paths.root, resume=paths.config.exists()), on_cluster(found) as site:
        keep_cluster_file(paths, configuration_file(found.path))  # not for a cluster that was not joined
        say_left_out_of_cluster(found.run)
        _run_daemon(found.run, None, log_file, site)


def _begin_or_continue(settings: "Config", *, resume: bool) -> None:
    """Raise an error if the start would fail at once. End the command if the run is finished.

    With `resume`, take over a run with a lost machine.
    """
    from dart.cli.continued import look_at_run
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
        look_at_run(settings, paths)


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
    log = log_of_daemon(log_file, settings.telemetry.daemon_log_bytes)
    page = {"page": PAGE_IS_OPEN} if is_open_here(settings.web) else {}
    log.info("daemon_started", pid=os.getpid(), run_dir=str(paths.root), **page)
    with Daemon(
        paths,
        log,
        outlives_terminal=outlives_terminal,
        output_bytes=settings.telemetry.daemon_log_bytes,
    ) as daemon:
        result = app.train(
            settings,
            resume=paths.config.exists(),
            listener=daemon,
            reread=read,
            site=site,
            is_locked=site is not None,
        )
    again = f"dartrl up {paths.option}" if site is None else "the same command"
    _end(result, paths.root, again)


def _end(result: "TrainResult", root: Path, command: str) -> None:
    """End the command with an exit code if the run failed, or ended by a signal before it was drained.

    Of a run that was drained, say on a terminal what its next start continues from.

    command   what starts the run again
    """
    if result.failure:
        end(result.failure, ExitCode.FAILED)
    if result.stopped_by is None:
        return
    if not result.is_drained:
        end_stopped(result.stopped_by, command, during=" before it was drained")
    if sys.stdout.isatty():  # elsewhere a program reads the log; and a terminal may have closed
        say(f"stopped by {signal_words(result.stopped_by)}. Go on with: {command}")
        say_what_is_left(root)
