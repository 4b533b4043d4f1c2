"""`dartrl train` and `pretrain`: make a policy, with the terminal as the view."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dart.cli.exit_codes import ExitCode, code_of_signal, end, errors_as_exit_codes
from dart.cli.options import CONFIGURATION, RUNS, NewRunDir, Overrides
from dart.cli.output import say
from dart.policy.vocabulary import Coordinates

if TYPE_CHECKING:
    from dart.config.config import Config


def train(
    config: Annotated[
        Path | None,
        typer.Argument(help=f"{CONFIGURATION} Default: the built-in values; with --resume, the run's own."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in the run directory.")
    ] = False,
    overrides: Overrides = None,
    run_dir: NewRunDir = None,
) -> None:
    """Train a policy until its time or its updates are used up, and show its success before and after.

    **Examples**

    * `dartrl train laptop`
    * `dartrl train --set run.minutes=5 --run-dir runs/short`
    * `dartrl train --resume --run-dir runs/short`
    """
    settings = training_config(config, overrides or [], run_dir, resume=resume)
    with errors_as_exit_codes(settings.run.dir):
        _train(settings, resume=resume)


def training_config(
    path: Path | None, overrides: Sequence[str], run_dir: Path | None, *, resume: bool
) -> "Config":
    """Return the configuration of a new run, or of the run to resume.

    raises    ConfigError, NotRunningError
    """
    from dart.config.config import load_config
    from dart.config.layers import literal
    from dart.core.run_directory import RunPaths, latest_run

    if resume and path is None:
        run_dir = run_dir or latest_run(RUNS)
        path = RunPaths(run_dir).config
    chosen = [f"run.dir={literal(str(run_dir))}"] if run_dir else []
    return load_config(path, [*overrides, *chosen])


def _train(config: "Config", *, resume: bool) -> None:
    from dart.core.run_directory import RunPaths, refuse_at_once
    from dart.preflight.hub_fetch import fetch_if_allowed
    from dart.preflight.requirements import require_installation

    paths = RunPaths(config.run.dir)
    refuse_at_once(paths, resume=resume)
    fetch_if_allowed(config, say)
    require_installation(config)
    from dart.run import app
    from dart.run.listener import ConsoleListener

    with ConsoleListener(paths) as screen:
        result = app.train(config, resume=resume, listener=screen)
    if result.failure:
        end(result.failure, ExitCode.FAILED)
    if result.stopped_by is not None:
        end(f"ended by signal {result.stopped_by}; go on with --resume", code_of_signal(result.stopped_by))


def pretrain(
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Folder to write the checkpoint to; it must not hold a checkpoint."),
    ],
    seed: Annotated[int, typer.Option(help="Seed of weights, demonstrations and batches.")] = 0,
    updates: Annotated[
        int | None, typer.Option(min=1, help="Optimizer updates; more make a better policy.")
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            help="A task of MiniWoB++ or a site to imitate, as `sites/mail/easy`; repeatable. Default: the "
            "tasks of the laptop job."
        ),
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="Demonstrations of each task that are imitated.")
    ] = None,
    coordinates: Annotated[
        Coordinates,
        typer.Option(help="How the policy writes points: as bins, or by a pointer head as patches."),
    ] = "bins",
    demonstrations: Annotated[
        Path | None, typer.Option(help="Folder of demonstrations made before. Default: the oracles play now.")
    ] = None,
) -> None:
    """Make a small base policy, such as that of the laptop job, by imitating scripted demonstrations.

    **Examples**

    * `dartrl pretrain --out runs/base-policy`
    * `dartrl pretrain --out runs/better-base --updates 400 --demonstrations runs/base-policy/demonstrations`
    * `dartrl pretrain --out runs/mail-policy --task sites/mail/easy --episodes 48`
    """
    if (out / "config.json").exists():
        end(f"{out} holds a checkpoint already; choose another folder with --out", ExitCode.CANNOT_CREATE)
    from dart.config.config import Config
    from dart.preflight.requirements import missing_browser, missing_packages, require_installation

    require_installation(Config(), checks=(missing_packages, missing_browser))
    import dart.imitation.pretrain as job

    given: dict[str, Any] = {"tasks": tuple(task or ()), "episodes_per_task": episodes, "updates": updates}
    chosen = job.PretrainConfig(
        seed=seed, coordinates=coordinates, **{name: value for name, value in given.items() if value}
    )
    job.main_job(chosen, out, demonstrations, say)
