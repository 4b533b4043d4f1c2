"""Options that several commands share, what the shell offers for them, and the run that a command is about.

When Tab is pressed, names of actors and tasks are read from the board and the configuration of the run,
without asking an actor. Names that take longer than `COMPLETION_S` to read are not offered.
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
"""Longest time that Tab may take to offer names; after a longer wait a shell looks broken."""


def offer(incomplete: str, names: Callable[[], Iterable[str]], limit_s: float = COMPLETION_S) -> list[str]:
    """Return the names that begin with `incomplete`.

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
    """Return the run directory that the command line names. Raises UsageError for that of another machine."""
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
        "Default: the running, or the newest, run in runs/.",
    ),
]
"""The run that a command is about; `chosen` makes it a folder."""

ActorName = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Name of an actor, as in `dartrl tree`.", autocompletion=offer_actors
    ),
]

OfTask = Annotated[str | None, typer.Option(help="Show only those of this task.", autocompletion=offer_tasks)]


def _refuse_address(folder: Path | None) -> Path | None:
    """Return the folder for a run. Raises typer.BadParameter for the address of a record."""
    if folder is not None and str(folder).partition(":")[0] in ("postgresql", "postgres"):
        raise typer.BadParameter("a run needs a folder; the address of its record is the key run.record")
    return folder


NewRunDir = Annotated[
    Path | None,
    typer.Option("--run-dir", "-r", help="Directory of the run (run.dir).", callback=_refuse_address),
]

Lines = Annotated[int, typer.Option("--lines", "-n", min=0, metavar="N", help="Show the N newest; 0: all.")]

ID_MOST = 10**18 - 1
"""Largest number of a rollout or a demonstration; the record counts in 64 bits."""

RUNS = Path("runs")
"""The folder in which a run is looked for if the command line names none."""

CONFIGURATION = "TOML file, or the name of a bundled configuration such as `laptop`."
"""Help of every argument that names a configuration."""


def reads_run(command: Callable[P, None]) -> Callable[P, None]:
    """Decorate a command with the option `run_dir`: its errors then name the run and damage of its data."""

    @wraps(command)
    def bounded(*args: P.args, **kwargs: P.kwargs) -> None:
        run_dir: Any = kwargs.get("run_dir")
        place, damage = (None, lambda: "") if is_address(run_dir) else (run_dir, partial(_damage, run_dir))
        with errors_as_exit_codes(place, damage):
            command(*args, **kwargs)

    return bounded


NamedRun = str | Path | None
"""A run as the command line names it, or its folder once that is chosen."""


def is_address(run: NamedRun) -> bool:
    """Whether a run is named by the address of its record."""
    return isinstance(run, str) and "://" in run


def chosen(run: NamedRun) -> Path:
    """Return the folder of a run; if it is None, that of the running, or else of the newest, run in runs/.

    The folder of a run that is named by the address of its record is a mirror (`dart.run.mirror`).
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
    """Return the directory of a run on this machine. Raises UsageError for the address of a record."""
    from dart.core.errors import UsageError

    if is_address(run):
        raise UsageError(
            "this needs the files of the run directory: run it on the control node of the run, with the "
            "directory in --run-dir"
        )
    return chosen(run)


def with_blobs(run: NamedRun) -> Path:
    """Return the folder of a run whose steps and screenshots this machine can read.

    raises   UsageError for the address of a record if the blobs are in the run directory there
    """
    from dart.core.run_directory import RunPaths
    from dart.store.run_blobs import blobs_address

    place = chosen(run)
    return place if blobs_address(RunPaths(place)) else chosen_here(run)


def trouble_in(place: Path) -> tuple[str, ExitCode]:
    """Return why a mirror can show only what the record knows, with the exit code that says so.

    The text is empty for a run directory of this machine, and for a mirror that shows everything.
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
    """Return the folder of a run whose actors can be read; else end the command and say why not."""
    place = chosen(run)
    trouble, code = trouble_in(place)
    if trouble:
        end(trouble, code)
    return place


def with_log(run: NamedRun, actor: str) -> Path:
    """Return the folder of a run with the log of an actor; else end the command and say why not."""
    from dart.core.run_directory import RunPaths

    place = with_actors(run)
    if RunPaths(place).mirror_of.exists():
        from dart.run.mirror import fetch_logs

        fetch_logs(place, actor)
    return place


@contextlib.contextmanager
def followed(place: Path) -> Iterator[None]:
    """While the block lasts, keep a mirror up to date; a run directory of this machine is so anyway."""
    from dart.core.run_directory import RunPaths

    if not RunPaths(place).mirror_of.exists():
        yield
        return
    from dart.run.mirror import kept_fresh

    with kept_fresh(place):
        yield


def recorded(run: NamedRun) -> "RunPaths":
    """Return the paths of the run that a command is about. The run may be running or have ended.

    If only the record can be shown, a message says so, and the command goes on.

    The command ends with a message if the run has nothing to show, or is running and has no record yet. A run
    that has ended without a record is damaged; reading its record says so.
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
    """Return the paths of the run that a command is about, if a snapshot of the run can be read.

    The command ends with a message if data are missing, or while the run starts or ends: the board then still
    shows the actors of an earlier start. The pid of the main process is in processes.json only while the run
    has actors.
    """
    from actors.orphans import launcher_of
    from dart.core.run_directory import holder

    paths = recorded(run)
    pid = holder(paths.root)
    _refuse_missing(paths, pid, paths.board, paths.root / "session.json")
    if pid is not None and launcher_of(paths.root / "processes.json") != pid:
        end(
            f"the run in {paths.title} is starting or ending as process {pid}, and none of its actors is up; "
            "ask again in a moment",
            ExitCode.UNKNOWN,
        )
    return paths


def _refuse_missing(paths: "RunPaths", pid: int | None, *needed: Path) -> None:
    """End the command with a message if one of the `needed` files is missing."""
    missing = next((path for path in needed if not path.exists()), None)
    if missing and pid is None:
        end(f"the run in {paths.title} is not running and left nothing to show", ExitCode.NOT_RUNNING)
    if missing:
        end(
            f"the run in {paths.title} is running as process {pid} and does not show its state yet "
            f"({missing.name} is missing); ask again in a moment",
            ExitCode.UNKNOWN,
        )


def _damage(run: NamedRun) -> str:
    """Describe what is wrong with the data of the run that a command is about; empty if nothing is wrong."""
    from dart.config.config import load_config
    from dart.core.errors import DartError
    from dart.core.run_directory import RunPaths
    from dart.store.integrity import check, listed

    paths = RunPaths(chosen(run))
    try:
        found = check(paths, load_config(paths.config), full=True)
    except DartError as error:
        return f"the data of the run cannot be read: {error}"
    return f"the data of the run in {paths.title} is damaged:\n{listed(found)}" if found else ""
