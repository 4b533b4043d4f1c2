"""Options that several commands share, their completion in the shell, and finding the run of a command.

When Tab is pressed, the names of actors are read from the board of the run and those of tasks from its
configuration, without asking an actor. If that takes longer than `COMPLETION_S`, no name is offered.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial, wraps
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

from dart.cli.exit_codes import ExitCode, end, errors_as_exit_codes
from dart.cli.output import say

if TYPE_CHECKING:
    from dart.core.run_directory import RunPaths

P = ParamSpec("P")

COMPLETION_S = 0.3
"""Longest time in seconds that Tab may take to offer names; after a longer wait the shell seems to hang."""


def offer(incomplete: str, names: Callable[[], Iterable[str]], limit_s: float = COMPLETION_S) -> list[str]:
    """Return those of the names that `names()` reads which begin with `incomplete`.

    If reading the names fails or takes longer than `limit_s`, no name is offered: a shell that completes a
    word must show no error.
    """
    found: list[str] = []

    def read() -> None:
        with contextlib.suppress(Exception):
            found.extend(name for name in names() if name.startswith(incomplete))

    reader = Thread(target=read, daemon=True)
    reader.start()
    reader.join(limit_s)
    return list(found)


def offer_actors(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of actors on the board that begin with `incomplete`, for completion by Tab."""

    def names() -> list[str]:
        from dart.inspect.actor_table import read_actors

        return [actor.name for actor in read_actors(_named_run(context))]

    return offer(incomplete, names)


def offer_tasks(context: typer.Context, incomplete: str) -> list[str]:
    """Return the ids in `tasks.train` that begin with `incomplete`, for completion by Tab."""

    def names() -> list[str]:
        from dart.inspect.actor_table import written_config

        found: list[str] = written_config(_named_run(context))["tasks"]["train"]
        return found

    return offer(incomplete, names)


def _named_run(context: typer.Context) -> Path:
    """Return the run directory that the command line names, by default the running or newest run in runs/.

    Raises UsageError for the address of a record, because the directory is then on another machine.
    """
    return chosen_here(context.params.get("run_dir"))


Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set one value of the configuration; may be repeated."),
]

RunDir = Annotated[
    str | None,
    typer.Option(
        "--run-dir",
        "-r",
        metavar="DIR|ADDRESS",
        help="Directory of the run, or the address of its record (postgresql://HOST/DATABASE). "
        "Default: the run in runs/ that is running, or else the newest.",
    ),
]
"""Option that names the run of a command, by folder or by address; `chosen` returns the folder of the run."""

ActorName = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Name of an actor, as in `dartrl tree`.", autocompletion=offer_actors
    ),
]

OfTask = Annotated[
    str | None, typer.Option(help="Show only what belongs to this task.", autocompletion=offer_tasks)
]


def _refuse_address(folder: Path | None) -> Path | None:
    """Return `folder` unchanged. Raises typer.BadParameter if it is the address of a record."""
    if folder is not None and str(folder).partition(":")[0] in ("postgresql", "postgres"):
        raise typer.BadParameter(
            "expected the folder of the run, got the address of a record; name a folder here, and the record "
            "with --set run.record=ADDRESS"
        )
    return folder


NewRunDir = Annotated[
    Path | None,
    typer.Option(
        "--run-dir", "-r", help="Directory of the run; sets the key run.dir.", callback=_refuse_address
    ),
]

Lines = Annotated[
    int, typer.Option("--lines", "-n", min=0, metavar="N", help="Show the newest N lines; 0: all.")
]

ID_MOST = 10**18 - 1
"""Largest id of a rollout or a demonstration that a command takes; every id of a record fits in 64 bits."""

RUNS = Path("runs")
"""The folder in which a run is looked for if the command line names none."""

CONFIGURATION = "TOML file, or the name of a bundled configuration such as `laptop`."
"""Help of every argument that names a configuration."""


def reads_run(command: Callable[P, None]) -> Callable[P, None]:
    """Decorate a command that has the option `run_dir`: its errors become messages and exit codes.

    After an unexpected error, the data of the run are checked, and damage is described in the message. The
    data of a run that is named by the address of its record are not checked.
    """

    @wraps(command)
    def bounded(*args: P.args, **kwargs: P.kwargs) -> None:
        run_dir: Any = kwargs.get("run_dir")
        with errors_as_exit_codes(damage=(lambda: "") if is_address(run_dir) else partial(_damage, run_dir)):
            command(*args, **kwargs)

    return bounded


NamedRun = str | Path | None
"""A run as the command line names it: a folder, an address, or None for the default."""


def is_address(run: NamedRun) -> bool:
    """Return whether a run is named by the address of its record."""
    return isinstance(run, str) and "://" in run


def chosen(run: NamedRun) -> Path:
    """Return the folder of a run. For None, it is the run in runs/ that is running, or else the newest.

    For the address of a record, it is a new mirror of the run (`dart.run.mirror`).
    """
    from dart.core.run_directory import latest_run

    if isinstance(run, str) and is_address(run):
        return _mirrored(run)
    return Path(run) if run else latest_run(RUNS)


def _mirrored(address: str) -> Path:
    from dart.core.errors import UsageError
    from dart.core.record_address import ServerAddress

    try:
        record = ServerAddress(address)
    except ValueError as error:
        raise UsageError(f"--run-dir: {error}") from error
    from dart.run.mirror import mirror_at

    return mirror_at(record).paths.root


def chosen_here(run: NamedRun) -> Path:
    """Return the directory of a run on this machine, as `chosen` does.

    Raises UsageError for the address of a record.
    """
    from dart.core.errors import UsageError

    if is_address(run):
        raise UsageError(
            "this command needs the files of the run directory, so it takes no address of a record: run it "
            "on the control node of the run, and name the directory with --run-dir"
        )
    return chosen(run)


def with_blobs(run: NamedRun) -> Path:
    """Return the folder of a run, if this machine can read the run's steps and screenshots.

    raises   UsageError if the run is named by the address of its record and its blobs are not in object
             storage, but in the run directory on the other machine
    """
    from dart.core.run_directory import RunPaths
    from dart.store.run_blobs import blobs_address

    place = chosen(run)
    return place if blobs_address(RunPaths(place)) else chosen_here(run)


def trouble_in(place: Path) -> tuple[str, ExitCode]:
    """Return why only the record of a run can be read, and the exit code for this reason.

    This happens to a mirror if the run has ended or its control node does not answer. For a run directory on
    this machine, and for a complete mirror, the reason is empty and the code is OK.
    """
    from dart.core.run_directory import RunPaths

    if not RunPaths(place).mirror_of.exists():
        return "", ExitCode.OK
    from dart.run.mirror import mirror_in

    mirror = mirror_in(place)
    if mirror is None or not mirror.trouble:
        return "", ExitCode.OK
    return mirror.trouble, ExitCode.NOT_RUNNING if mirror.has_ended else ExitCode.UNKNOWN


def with_actors(run: NamedRun) -> Path:
    """Return the folder of a run. If its actors cannot be read, end the command with the reason.

    Raises NotRunningError if there is no run in the folder.
    """
    from dart.core.run_directory import RunPaths, holder

    place = chosen(run)
    trouble, code = trouble_in(place)
    if trouble:
        end(trouble, code)
    _refuse_earlier_board(RunPaths(place), holder(place))
    return place


def with_log(run: NamedRun, actor: str) -> Path:
    """Return the folder of a run, after fetching the log of an actor if the folder is a mirror.

    If the actors of the run cannot be read, the command ends with the reason.
    """
    from dart.core.run_directory import RunPaths

    place = with_actors(run)
    if RunPaths(place).mirror_of.exists():
        from dart.run.mirror import fetch_logs

        fetch_logs(place, actor)
    return place


@contextlib.contextmanager
def followed(place: Path) -> Iterator[None]:
    """While the block lasts, keep a mirror up to date. For a run directory of this machine, do nothing."""
    from dart.core.run_directory import RunPaths

    if not RunPaths(place).mirror_of.exists():
        yield
        return
    from dart.run.mirror import kept_fresh

    with kept_fresh(place):
        yield


def recorded(run: NamedRun) -> "RunPaths":
    """Return the paths of the run that a command is about. The run may be running or have ended.

    If only the record can be shown, a note on standard error says so, and the command continues.

    The command ends with a message if the run has no configuration, or is running and has no record yet. A
    run that has ended without a record is damaged: the paths are returned, and opening the record fails.
    """
    from dart.core.run_directory import RunPaths, holder

    paths = RunPaths(chosen(run))
    if trouble := trouble_in(paths.root)[0]:
        say(f"note: {trouble}", err=True)
    pid = holder(paths.root)
    _refuse_missing(paths, pid, paths.config)
    if pid is not None and paths.record == paths.store:
        _refuse_missing(paths, pid, paths.store)
    return paths


def shown(run: NamedRun) -> "RunPaths":
    """Return the paths of the run that a command is about, if its current state can be read from its files.

    The command ends with a message if a file is missing, or while the run is starting.
    """
    from dart.core.run_directory import holder

    paths = recorded(run)
    pid = holder(paths.root)
    _refuse_missing(paths, pid, paths.board, paths.session)
    _refuse_earlier_board(paths, pid)
    return paths


def _refuse_earlier_board(paths: "RunPaths", pid: int | None) -> None:
    """End the command while the run is starting, because the board then shows the actors of an earlier start.

    pid   process id of the run's main process; None if the run is not running
    """
    from dart.inspect.actor_table import starting

    if text := starting(paths, pid):
        end(f"{text}; ask again in a moment", ExitCode.UNKNOWN)


def _refuse_missing(paths: "RunPaths", pid: int | None, *needed: Path) -> None:
    """End the command with a message if one of the `needed` files is missing.

    pid   process id of the run's main process; None if the run is not running
    """
    missing = next((path for path in needed if not path.exists()), None)
    if missing and pid is None:
        end(
            f"the run in {paths.title} is not running and left nothing to show; "
            "name another run with --run-dir",
            ExitCode.NOT_RUNNING,
        )
    if missing:
        end(
            f"the run in {paths.title} is running as process {pid} and does not show its state yet "
            f"({missing.name} is missing); ask again in a moment",
            ExitCode.UNKNOWN,
        )


def _damage(run: NamedRun) -> str:
    """Describe what is wrong with the data of the run that a command is about; empty if nothing is wrong."""
    from dart.config.config import kept_config
    from dart.core.errors import DartError
    from dart.core.run_directory import RunPaths
    from dart.store.integrity import check, listed

    paths = RunPaths(chosen(run))
    try:
        found = check(paths, kept_config(paths.config), full=True)
    except DartError as error:
        return f"the data of the run cannot be read: {error}"
    return f"the data of the run in {paths.title} is damaged:\n{listed(found)}" if found else ""
