"""`dartrl explore`: explore a site, print the progress, and write grounding data of the screens found."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dart.cli.exit_codes import ExitCode, end, end_stopped, errors_as_exit_codes
from dart.cli.options import CONFIGURATION, RUNS, NewRunDir, Overrides
from dart.cli.output import say

if TYPE_CHECKING:
    from dart.config.config import Config

EXPLORE_TASK = "explore"
"""Kind of a site's task that is explored and has no goal: `sites/shop` means `sites/shop/explore`."""


def explore(
    site: Annotated[
        str | None,
        typer.Argument(
            metavar="SITE",
            help="What to explore: a site, or a task whose screens are pages.",
            show_default=False,
        ),
    ] = None,
    actions: Annotated[
        int | None,
        typer.Option(
            "--actions",
            "-n",
            min=1,
            help="Number of actions after which no explorer gets another screen; a reset counts as one.",
        ),
    ] = None,
    explorers: Annotated[
        int | None, typer.Option(min=1, help="Number of browsers that explore at the same time.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help=CONFIGURATION)] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the exploration in the run directory.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Afterwards, write grounding data of the explored screens to this folder, in ScreenSpot's "
            "format."
        ),
    ] = None,
    overrides: Overrides = None,
    run_dir: NewRunDir = None,
) -> None:
    """Explore a site: find its screens and the actions that lead from one to another.

    Ctrl-C ends the exploration after the actions under way; `--resume` continues it. The page of the run
    (`dartrl web`) shows the exploration graph.

    **Examples**

    * `dartrl explore miniwob/navigate-tree --actions 200`
    * `dartrl explore sites/shop --explorers 2 --run-dir runs/shop`
    * `dartrl explore --resume --run-dir runs/shop --actions 1600`
    * `dartrl explore --resume --run-dir runs/shop --data data/shop`
    """
    if site is None and not resume:
        end("name the site to explore, as in `dartrl explore sites/shop`", ExitCode.USAGE)
    from dart.config.layers import overrides_of

    folder = _folder(site, run_dir, config, overrides or [])
    given = {"exploration.actions": actions, "exploration.explorers": explorers, "run.dir": folder}
    chosen = [*(overrides or []), *overrides_of(of_site(site, EXPLORE_TASK) | given)]
    settings = load_or_kept(config, chosen, folder, resume=resume)
    with errors_as_exit_codes(settings.run.dir):
        _explore(settings, resume=resume)
        if data is not None:
            _write_data(settings, data)


def _folder(site: str | None, run_dir: Path | None, config: Path | None, overrides: Sequence[str]) -> Path:
    """Return the run directory: the named one, or else that of the site, of the file, or of the newest
    exploration in runs/. Ends the command if there is none."""
    from dart.config.config import load_config
    from dart.core.run_directory import RunPaths, is_exploration

    if run_dir is not None:
        return run_dir
    if site is not None:
        return RUNS / f"explore-{site.replace('/', '-')}"
    if config is not None:
        return load_config(config, overrides).run.dir
    runs = sorted(RUNS.glob("*/lock"), key=lambda lock: lock.stat().st_mtime)
    found = [lock.parent for lock in runs if is_exploration(RunPaths(lock.parent))]
    if not found:
        end(f"there is no exploration in {RUNS}/; name its directory with --run-dir", ExitCode.NOT_RUNNING)
    return found[-1]


def of_site(site: str | None, trained: str) -> dict[str, object]:
    """Return the values of the configuration, by key, that name a site; none if `site` is None.

    trained   name of the site's task that is trained, if the site has one
    """
    if site is None:
        return {}
    return {
        "environments.kind": site.partition("/")[0],
        "exploration.tasks": [task_of(site, EXPLORE_TASK)],
        "tasks.train": [task_of(site, trained)],
    }


def task_of(site: str, named: str) -> str:
    """Return the id of the task `named` of a site: `sites/shop/easy` for `sites/shop` and `easy`.

    If the site has no such task, `site` is a task id itself and is returned. An unknown site ends the
    command.
    """
    from dart.config.config import Config, known_tasks
    from dart.config.environment_kinds import KINDS
    from dart.core.suggestions import did_you_mean, near

    kind = site.partition("/")[0]
    if kind not in KINDS:
        pages = ", ".join(name for name, one in KINDS.items() if one.is_page)
        end(f"there is no site {site!r}: its name begins with one of {pages}", ExitCode.USAGE)
    config = Config()
    of_kind = config.model_copy(
        update={"environments": config.environments.model_copy(update={"kind": kind})}
    )
    known = known_tasks(of_kind)
    if known and site not in known:
        end(f"there is no site {site!r}{did_you_mean(near(site, known))}", ExitCode.USAGE)
    task = f"{site}/{named}"
    return task if task in known else site


def load_or_kept(
    path: Path | None, overrides: list[str], folder: Path, *, resume: bool, default: Path | None = None
) -> "Config":
    """Load the configuration `path`; without it, with `resume`, that of the run in `folder`, or `default`."""
    from dart.config.config import load_config
    from dart.core.run_directory import RunPaths

    kept = RunPaths(folder).config
    if resume and kept.is_file():  # else a later check says that there is nothing to resume
        path = path or kept
    return load_config(path or default, overrides)


def _explore(config: "Config", *, resume: bool) -> None:
    from dart.core.run_directory import RunPaths, plays_tasks, refuse_at_once
    from dart.preflight.requirements import missing_browser, missing_packages, require_installation

    paths = RunPaths(config.run.dir)
    refuse_at_once(paths, resume=resume)
    if plays_tasks(paths):
        end(
            f"the run in {paths.root} is not an exploration: it plays tasks; continue it with `dartrl up "
            f"{paths.option}`, or name the directory of an exploration with --run-dir",
            ExitCode.USAGE,
        )
    needs_model = config.exploration.prior == "model"
    checks = (missing_packages, missing_browser) if needs_model else (missing_browser,)
    require_installation(config, checks=checks)
    from dart.run.exploration import ProgressLines
    from dart.run.exploration import explore as run_exploration

    result = run_exploration(config, resume=resume, show=ProgressLines(say))
    for one in result.progress:
        say(
            f"{one.task_id}: {one.screens} screens of {one.shapes} shapes and {one.edges} known ways between "
            f"them, with {one.actions} actions; {one.open_screens} screens have untried actions"
        )
    if result.contexts_refused:
        say(
            f"engines refused the text of exploration.prior_context_bytes {result.contexts_refused} times, "
            "and the prior was taken without it; a lower value may fit (`dartrl events` tells the reasons)"
        )
    if result.stopped_by:
        end_stopped(result.stopped_by, f"dartrl explore --resume {paths.option}")


def _write_data(config: "Config", folder: Path) -> None:
    """Write grounding data of every explored task to `folder`; if several, to one subfolder each."""
    from dart.core.run_directory import RunPaths
    from dart.exploration.dataset_files import write_dataset_of_run

    tasks = config.exploration.tasks or config.tasks.train
    for task_id in tasks:
        place = folder if len(tasks) == 1 else folder / task_id.replace("/", "-")
        written = write_dataset_of_run(place, RunPaths(config.run.dir), task_id, config.exploration.seed)
        parts = ", ".join(f"{count} in {place / split.value}" for split, count in written.items())
        say(f"{task_id}: {parts}")
