"""`dartrl demo`: train a small policy on one task in about a minute, and print its progress."""

import os
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dart.cli.exit_codes import ExitCode, end, end_stopped, errors_as_exit_codes
from dart.cli.options import RUNS, NewRunDir, Overrides
from dart.cli.output import say

if TYPE_CHECKING:
    from dart.config.config import Config

CONFIGURATION = "demo"


def demo(
    seed: Annotated[int, typer.Option(min=0, help="Seed of every random choice (run.seed).")] = 0,
    opens_browser: Annotated[
        bool,
        typer.Option(
            "--browser/--no-browser", help="Open the page of the run in your browser if there is a display."
        ),
    ] = True,
    overrides: Overrides = None,
    run_dir: NewRunDir = None,
) -> None:
    """Watch a small policy learn one task in about a minute, on two free processor cores and without a GPU.

    Nothing is scripted. Four browsers play the MiniWoB++ task click-dialog. The policy samples every answer.
    It mostly fails at first, and GRPO updates it every few seconds. You see the success rate of the newest
    rollouts, a web page of the run, one rollout step by step before and one after training, and the
    evaluations on held-out seeds before and after.

    The run directory is kept: `runs/demo`, or `runs/demo-2` and so on if that exists. Ctrl-C ends the run:
    episodes in progress end, and the trained versions are kept. The configuration is the bundled `demo`
    (`dartrl config show demo`).

    **Examples**

    * `dartrl demo`
    * `dartrl demo --seed 1 --no-browser`
    * `dartrl demo --set run.minutes=3 --run-dir runs/longer-demo`
    """
    from dart.config.bundled import bundled_folder
    from dart.config.config import load_config
    from dart.config.layers import overrides_of

    place = run_dir or free_directory(RUNS)
    given = [f"run.seed={seed}", *(overrides or []), *overrides_of({"run.dir": place})]
    settings = load_config(bundled_folder() / f"{CONFIGURATION}.toml", given)
    with errors_as_exit_codes(settings.run.dir):
        _demonstrate(settings, opens_browser=opens_browser)


def free_directory(runs: Path) -> Path:
    """Return the first of the paths `demo`, `demo-2`, `demo-3` and so on in `runs` that does not exist."""
    names = (CONFIGURATION if number == 1 else f"{CONFIGURATION}-{number}" for number in count(1))
    return next(runs / name for name in names if not (runs / name).exists())


def _demonstrate(config: "Config", *, opens_browser: bool) -> None:
    from dart.core.run_directory import RunPaths, refuse_at_once
    from dart.preflight.requirements import require_installation

    paths = RunPaths(config.run.dir)
    refuse_at_once(paths, resume=False)
    require_installation(config)
    say(_introduction(config))
    from dart.cli.demo_view import DemoListener, open_page
    from dart.run import app

    display = os.environ if opens_browser else {}
    listener = DemoListener(paths, say, partial(open_page, environment=display))
    result = app.train(config, listener=listener)
    if result.failure:
        end(result.failure, ExitCode.FAILED)
    if result.stopped_by is not None:
        end_stopped(result.stopped_by, f"dartrl train --resume {paths.option}")


def _introduction(config: "Config") -> str:
    environments, tasks = config.environments.count, ", ".join(config.tasks.train)
    return (
        f"{environments} browsers play {tasks}; the policy is {config.training.policy.name}, and training "
        f"updates it after every {config.training.groups_per_update} groups of "
        f"{config.curation.rollouts_per_group} rollouts.\n"
        f"Everything is kept in {config.run.dir}; Ctrl-C ends it. Starting ..."
    )
