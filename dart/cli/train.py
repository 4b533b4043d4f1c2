"""`dartrl train` and `dartrl pretrain`: train a policy and show the progress on the terminal."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dart.cli.exit_codes import ExitCode, end, end_stopped, errors_as_exit_codes
from dart.cli.options import CONFIGURATION, RUNS, NewRunDir, Overrides
from dart.cli.output import say, say_left_out
from dart.policy.vocabulary import Coordinates

if TYPE_CHECKING:
    from dart.config.config import Config


def train(
    config: Annotated[
        Path | None,
        typer.Argument(help=f"{CONFIGURATION} Default: the built-in values; with --resume, the run's own."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in the run directory.")] = False,
    overrides: Overrides = None,
    run_dir: NewRunDir = None,
) -> None:
    """Train a policy for `run.minutes` or `training.updates`, whichever ends first, and show its success on
    held-out seeds before and after.

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

    path      None: the built-in values; with `resume`, the configuration in the run directory
    run_dir   None: with `resume` and without `path`, the run in runs/ that is running or newest and trains
    raises    ConfigError; NotRunningError or RunDirectoryError if there is no run to resume, or if it is on a
              cluster; RunDirectoryError for the configuration of a run that was moved, without its new place
    """
    from dart.config.config import resolve
    from dart.config.layers import overrides_of
    from dart.core.run_directory import RunPaths, config_to_resume, latest_run, refuse_without_cluster_file

    if resume and path is None:
        run_dir = run_dir or latest_run(RUNS, trains=True)
        path = config_to_resume(RunPaths(run_dir))
        refuse_without_cluster_file(RunPaths(run_dir))
    config, origins = resolve(path, [*overrides, *overrides_of({"run.dir": run_dir})])
    if path is not None and origins["run.dir"] == str(path):
        _refuse_moved(path, config.run.dir)
    return config


def _refuse_moved(path: Path, named: Path) -> None:
    """Raise RunDirectoryError for the configuration of a run that was moved or copied since its last start.

    The file still names the earlier directory, in which another run would begin or be continued.

    named   the directory that the file names
    """
    from dart.config.config import is_kept_by_run
    from dart.core.errors import RunDirectoryError
    from dart.core.run_directory import RunPaths

    here = RunPaths(path.resolve().parent)
    if is_kept_by_run(path) and named.resolve() != here.root:
        raise RunDirectoryError(
            f"{path} is the configuration of the run in {here.root}, and its run.dir is {named}: continue "
            f"that run with {here.option}, or name the directory of a new run with --run-dir"
        )


def _train(config: "Config", *, resume: bool) -> None:
    from dart.cli.continued import look_at_run
    from dart.core.run_directory import RunPaths, refuse_at_once, refuse_untrained
    from dart.preflight.hub_fetch import fetch_if_allowed
    from dart.preflight.requirements import require_installation
    from dart.run.other_control_node import refuse_running_elsewhere

    paths = RunPaths(config.run.dir)
    refuse_at_once(paths, resume=resume)
    refuse_untrained(paths)
    if resume:
        refuse_running_elsewhere(config, paths)
        look_at_run(config, paths)
    fetch_if_allowed(config, say)
    require_installation(config)
    say_left_out(config)
    say(f"to see the run in the browser: dartrl web {paths.option}", err=True)
    from dart.inspect.result import why_nothing_was_trained
    from dart.run import app
    from dart.run.listener import ConsoleListener

    with ConsoleListener(paths) as screen:
        result = app.train(config, resume=resume, listener=screen)
    if result.failure:
        end(result.failure, ExitCode.FAILED)
    if result.stopped_by is not None:
        end_stopped(result.stopped_by, f"dartrl train --resume {paths.option}")
    if config.training.learner != "none" and (why := why_nothing_was_trained(result.snapshot)):
        say(why, err=True)


def pretrain(
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Folder to write the checkpoint to; it must not hold a checkpoint."),
    ],
    seed: Annotated[
        int, typer.Option(help="Seed of the initial weights, the demonstrations and the batches.")
    ] = 0,
    updates: Annotated[
        int | None, typer.Option(min=1, help="Number of optimizer steps; more make a better policy.")
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            help="A task of MiniWoB++ or of a site to imitate, such as `sites/mail/easy`; may be repeated. "
            "Without it the policy of the configuration `laptop` is made, mostly from other tasks."
        ),
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(min=1, help="Number of demonstrations of each task that --task names. Default: 140."),
    ] = None,
    coordinates: Annotated[
        Coordinates,
        typer.Option(help="How the policy writes points: as coordinate bins, or as patches (pointer head)."),
    ] = "bins",
    reading: Annotated[
        bool,
        typer.Option(
            help="Teach the policy of the configuration `laptop` letters and words, too, from pages with "
            "random words. It follows more instructions that name an element by its text, takes longer to "
            "make, and answers more slowly."
        ),
    ] = False,
    demonstrations: Annotated[
        Path | None,
        typer.Option(
            help="Folder with data made before. Default: `demonstrations` in the folder of --out. Oracles "
            "play new data in a browser unless an earlier try has left it there."
        ),
    ] = None,
) -> None:
    """Train a small base policy, such as that of `dartrl train laptop`, by imitation of scripted solutions.

    **Examples**

    * `dartrl pretrain --out runs/base-policy`
    * `dartrl pretrain --out runs/reading-base --reading`
    * `dartrl pretrain --out runs/better-base --updates 4000 --demonstrations runs/base-policy/demonstrations`
    * `dartrl pretrain --out runs/mail-policy --task sites/mail/easy --episodes 48`
    """
    if episodes and not task:
        end("--episodes counts demonstrations of tasks: name them with --task", ExitCode.USAGE)
    if reading and (task or coordinates != "bins"):
        end(
            "--reading makes the policy of `laptop` with bins: leave out --task and --coordinates",
            ExitCode.USAGE,
        )
    if (out / "config.json").exists():
        end(f"{out} holds a checkpoint already; choose another folder with --out", ExitCode.CANNOT_CREATE)
    from dart.config.config import Config
    from dart.environments.faults import InfrastructureFault
    from dart.preflight.requirements import missing_browser, missing_packages, require_installation

    require_installation(Config(), checks=(missing_packages, missing_browser))
    import dart.imitation.pretrain as job

    named = tuple((one, episodes or job.EPISODES_PER_TASK) for one in task or ())
    if named:
        recipe = job.PretrainConfig(episodes=named, coordinates=coordinates)
    else:
        recipe = job.laptop_base_that_reads() if reading else job.laptop_base(coordinates)
    config = replace(recipe, seed=seed, updates=updates or recipe.updates)
    try:
        job.main_job(config, out, demonstrations, say)
    except InfrastructureFault as fault:
        is_trained = (out / "config.json").exists()
        remedy = "the checkpoint only lacks its README.md" if is_trained else "repeat the command"
        end(f"an environment failed twice in one episode: {fault}; {remedy}", ExitCode.TEMPORARY)
