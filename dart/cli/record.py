"""Finding the run a command is about, and its record."""

from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dart.cli.boundary import end, errors_as_exit_codes
from dart.cli.exit_codes import ExitCode
from dart.cli.options import RUNS

if TYPE_CHECKING:
    from dart.core.run_directory import RunPaths


def chosen(run_dir: Path | None) -> Path:
    """The directory that was named, or that of the run in runs/ that is running or the newest there."""
    from dart.core.run_directory import latest_run

    return run_dir or latest_run(RUNS)


def recorded(run_dir: Path | None) -> "RunPaths":
    """The run a command is about, which has a record to look at; it may be running or have ended.

    One that has ended without a record is damaged: whoever reads that says so.
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
    _refuse_another_part(paths)
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


def explained(run_dir: Path | None) -> AbstractContextManager[None]:
    """The boundary of a command that looks at a run: an error of damaged data says what is damaged."""
    return errors_as_exit_codes(damage=partial(damage_of, run_dir))


def _refuse_another_part(paths: "RunPaths") -> None:
    """While a run is taken up again, what is there to see is the part before; its main process says when it
    has started actors of its own, and takes that back when they have ended."""
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
    """Say why there is nothing to show, where that is so."""
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
