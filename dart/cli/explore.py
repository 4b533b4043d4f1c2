"""`dartrl explore`: find the screens of a site, with progress on the terminal."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dart.cli.exit_codes import ExitCode, code_of_signal, end, errors_as_exit_codes
from dart.cli.options import CONFIGURATION, RUNS, NewRunDir, Overrides
from dart.cli.output import say

if TYPE_CHECKING:
    from dart.config.config import Config

EXPLORE_TASK = "explore"
"""Kind of a site's task in which nothing is asked for: `sites/shop` means `sites/shop/explore`."""


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
        typer.Option("--actions", "-n", min=1, help="Actions after which no walk begins, resets included."),
    ] = None,
    explorers: Annotated[int | None, typer.Option(min=1, help="Number of browsers.")] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help=CONFIGURATION)] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the exploration in the run directory.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write grounding data of the explored screens to, in ScreenSpot's format."
        ),
    ] = None,
    overrides: Overrides = None,
    run_dir: NewRunDir = None,
) -> None:
    """Explore a site: find its screens and what leads from one to another.

    Ctrl-C ends it after the actions under way; `--resume` goes on. The page of the run (`dartrl web`) shows
    the graph.

    **Examples**

    * `dartrl explore miniwob/navigate-tree --actions 200`
    * `dartrl explore sites/shop --explorers 2 --run-dir runs/shop`
    * `dartrl explore --resume --run-dir runs/shop --actions 1600`
    * `dartrl explore --resume --run-dir runs/shop --data data/shop`
    """
    if site is None and not resume:
        end("name the site to explore, as in `dartrl explore sites/shop`", ExitCode.USAGE)
    chosen = _chosen(site, actions, explorers, run_dir)
    settings = _config(config, [*(overrides or []), *chosen], run_dir, resume=resume)
    with errors_as_exit_codes(settings.run.dir):
        _explore(settings, resume=resume)
        if data is not None:
            _write_data(settings, data)


def _chosen(site: str | None, actions: int | None, explorers: int | None, run_dir: Path | None) -> list[str]:
    """The options as overrides of the configuration."""
    from dart.config.layers import literal

    chosen = []
    if site is not None:
        kind = site.partition("/")[0]
        chosen += [f"environments.kind={literal(kind)}", f'exploration.tasks=["{_task_of(site)}"]']
        chosen += [f'tasks.train=["{_task_of(site)}"]']
    if actions is not None:
        chosen.append(f"exploration.actions={actions}")
    if explorers is not None:
        chosen.append(f"exploration.explorers={explorers}")
    if run_dir is not None or site is not None:
        folder = run_dir or RUNS / f"explore-{(site or '').replace('/', '-')}"
        chosen.append(f"run.dir={literal(str(folder))}")
    return chosen


def _task_of(site: str) -> str:
    """The task that explores a site, where the site has one."""
    from dart.config.config import Config, known_tasks
    from dart.config.environment_kinds import KINDS

    kind = site.partition("/")[0]
    if kind not in KINDS:
        pages = ", ".join(name for name, one in KINDS.items() if one.is_page)
        end(f"there is no site {site!r}: its name begins with one of {pages}", ExitCode.USAGE)
    config = Config()
    of_kind = config.model_copy(
        update={"environments": config.environments.model_copy(update={"kind": kind})}
    )
    named = f"{site}/{EXPLORE_TASK}"
    return named if named in known_tasks(of_kind) else site


def _config(path: Path | None, overrides: list[str], run_dir: Path | None, *, resume: bool) -> "Config":
    from dart.config.config import load_config
    from dart.core.run_directory import RunPaths, latest_run

    if resume and path is None:
        path = RunPaths(run_dir or latest_run(RUNS)).config
    return load_config(path, overrides)


def _explore(config: "Config", *, resume: bool) -> None:
    from dart.core.run_directory import RunPaths, refuse_at_once
    from dart.preflight.requirements import missing_browser, missing_packages, require_installation

    refuse_at_once(RunPaths(config.run.dir), resume=resume)
    needs_model = config.exploration.prior == "model"
    checks = (missing_packages, missing_browser) if needs_model else (missing_browser,)
    require_installation(config, checks=checks)
    from dart.run.exploration import explore as run_exploration

    shown: set[str] = set()

    def show(progress: tuple[Any, ...]) -> None:
        line = progress_line(progress)
        if line not in shown:
            shown.add(line)
            say(line)

    result = run_exploration(config, resume=resume, show=show)
    for one in result.progress:
        say(
            f"{one.task_id}: {one.screens} screens of {one.shapes} shapes and {one.edges} known ways between "
            f"them, with {one.actions} actions; {one.open_screens} screens have untried actions"
        )
    if result.stopped_by:
        end(f"ended by signal {result.stopped_by}; go on with --resume", code_of_signal(result.stopped_by))


def _write_data(config: "Config", folder: Path) -> None:
    """Write grounding data of every explored task, a folder for each if there are several."""
    from dart.core.run_directory import RunPaths
    from dart.exploration.dataset_files import write_dataset
    from dart.exploration.follower import GraphFollower
    from dart.store.reader import StoreReader
    from dart.store.run_blobs import blobs_of

    paths, tasks = RunPaths(config.run.dir), config.exploration.tasks or config.tasks.train
    seed = config.exploration.seed
    with StoreReader(paths.record) as reader:
        for task_id in tasks:
            follower = GraphFollower(reader, task_id, seed)
            follower.follow()
            place = folder if len(tasks) == 1 else folder / task_id.replace("/", "-")
            screenshots = blobs_of(paths).screenshots
            written = write_dataset(place, follower.graph, task_id, seed, screenshots, paths.title)
            parts = ", ".join(f"{count} in {place / split.value}" for split, count in written.items())
            say(f"{task_id}: {parts}")


def progress_line(progress: tuple[Any, ...]) -> str:
    """One line about the first task that is not used up yet."""
    one = next((one for one in progress if one.actions < one.most_actions), progress[-1])
    return (
        f"{one.task_id}: action {one.actions} of {one.most_actions}, {one.screens} screens, "
        f"{one.shapes} shapes, {one.open_screens} to expand"
    )
