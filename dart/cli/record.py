"""Finding the run a command is about, and its record."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from dart.cli.boundary import end, errors_as_exit_codes
from dart.cli.exit_codes import ExitCode
from dart.cli.options import RUNS

if TYPE_CHECKING:
    from dart.core.run_directory import RunPaths

P = ParamSpec("P")


def explained(run_dir: Path | None) -> AbstractContextManager[None]:
    """The boundary of a command that reads a run: an error of damaged data names the damage."""
    return errors_as_exit_codes(damage=partial(damage_of, run_dir))


def reads_run(command: Callable[P, None]) -> Callable[P, None]:
    """Put a command with the option `run_dir` inside `explained`."""

    @wraps(command)
    def bounded(*args: P.args, **kwargs: P.kwargs) -> None:
        run_dir: Any = kwargs.get("run_dir")
        with explained(run_dir):
            command(*args, **kwargs)

    return bounded


def chosen(run_dir: Path | None) -> Path:
    """The directory that was named, or the run in runs/ that is running, or the newest there."""
    from dart.core.run_directory import latest_run

    return run_dir or latest_run(RUNS)


def recorded(run_dir: Path | None) -> "RunPaths":
    """The run a command is about, which has a record to look at; it may be running or have ended.

    A run that has ended without a record is damaged; reading its record says so.
    """
    from dart.core.run_directory import RunPaths, holder

    paths = RunPaths(chosen(run_dir))
    _refuse_missing(paths, paths.config)
    if holder(paths.root) is not None:
        _refuse_missing(paths, paths.store)
    return paths


def shown(run_dir: Path | None) -> "RunPaths":
    """The same with everything that a snapshot is made of."""
    paths = recorded(run_dir)
    _refuse_missing(paths, paths.board, paths.root / "session.json")
    _refuse_without_actors(paths)
    return paths


def damage_of(run_dir: Path | None) -> str:
    """What is wrong with the data of the run that a command is about; empty where nothing is found."""
    from dart.config.config import load_config
    from dart.core.errors import DartError
    from dart.core.run_directory import RunPaths
    from dart.store.integrity import check, told

    paths = RunPaths(chosen(run_dir))
    try:
        found = check(paths, load_config(paths.config), full=True)
    except DartError as error:
        return f"the data of the run cannot be read: {error}"
    return f"the data of the run in {paths.root} is damaged:\n{told(found)}" if found else ""


def _refuse_without_actors(paths: "RunPaths") -> None:
    """End the command while a run starts or ends: the board still shows the actors of an earlier start.

    The main process writes its number into processes.json while it has actors.
    """
    from actors.orphans import launcher_of
    from dart.core.run_directory import holder

    pid = holder(paths.root)
    if pid is not None and launcher_of(paths.root / "processes.json") != pid:
        end(
            f"the run in {paths.root} is starting or ending as process {pid}, and none of its actors is up; "
            "ask again in a moment",
            ExitCode.UNKNOWN,
        )


def _refuse_missing(paths: "RunPaths", *needed: Path) -> None:
    """End the command where one of the files is missing, and say why."""
    from dart.core.run_directory import holder

    pid = holder(paths.root)
    missing = next((path for path in needed if not path.exists()), None)
    if missing and pid is None:
        end(f"the run in {paths.root} is not running and left nothing to show", ExitCode.NOT_RUNNING)
    if missing:
        end(
            f"the run in {paths.root} is running as process {pid} and does not show its state yet "
            f"({missing.name} is missing); ask again in a moment",
            ExitCode.UNKNOWN,
        )
