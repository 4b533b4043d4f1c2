"""`dartrl eval`: measure a checkpoint on held-out seeds, outside of any training run."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dart.cli.exit_codes import ExitCode, end, end_stopped, errors_as_exit_codes
from dart.cli.options import CONFIGURATION, Overrides
from dart.cli.output import Format, Output, print_data, say, say_left_out

if TYPE_CHECKING:
    from dart.config.config import Config
    from dart.core.run_directory import RunPaths
    from dart.run.evaluation import Measurement

OF_A_RUN, OF_AN_EVALUATION = "with --set training.policy=FOLDER", "as CHECKPOINT"
"""How a run is told which checkpoint to use, as messages say it, and how an evaluation is told."""


def evaluate(
    checkpoint: Annotated[
        Path | None, typer.Argument(help="Folder of a checkpoint; not needed with --resume.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help=f"{CONFIGURATION} Default: that of the checkpoint's run."),
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            help="Tasks to play: osworld-369, osworld-361 (without those that need Google Drive), "
            "osworld-ablation-45 (DART's ablation), a file of task ids, or a task id; repeatable. Default: "
            "those of the configuration."
        ),
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(
            "--episodes", "-k", min=1, help="Episodes of each task, each on a held-out seed of its own."
        ),
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(help="New directory in which the evaluation is kept. Default: it is only printed."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the evaluation in --run-dir.")] = False,
    overrides: Overrides = None,
    output: Output = Format.TABLE,
) -> None:
    """Measure a checkpoint on held-out seeds: success by task, pass@1 and pass@k, with 95 % intervals.

    Each seed is played with sampled answers. The first seeds of each task, as many as
    `evaluation.greedy_seeds_per_task`, are also played with the most likely answers. An episode that ends
    without a reward is left out of the rates and counted below the table.

    `dartrl eval rescore RUN` scores the stored episodes of an OSWorld run again with other evaluators. If
    your checkpoint is in a folder named `rescore`, write `./rescore`.

    **Examples**

    * `dartrl eval configs/base-policy`
    * `dartrl eval runs/laptop/checkpoints/v000042 --episodes 100`
    * `dartrl eval models/UI-TARS-1.5-7B -c osworld-uitars-7b --tasks osworld-361 -k 4 --run-dir runs/base`
    * `dartrl eval --resume --run-dir runs/base`
    """
    if resume != (checkpoint is None) or (resume and run_dir is None):
        end(
            "name either a checkpoint to measure, or an evaluation to continue with --resume --run-dir DIR",
            ExitCode.USAGE,
        )
    if resume and config is not None:
        end(
            "an evaluation continues with the configuration that it has: leave out --config, and change "
            "single values with --set",
            ExitCode.USAGE,
        )
    settings = _settings(checkpoint, config, run_dir, _chosen(tasks or (), episodes, overrides or ()))
    with errors_as_exit_codes(run_dir or Path()):
        found = _measure(settings, is_kept=run_dir is not None, resume=resume)
    if output.is_data:
        from dart.run.evaluation import as_json

        print_data(as_json(found, settings), output)
    else:
        _print(found)
    if found.stopped_by is not None:
        from dart.core.run_directory import RunPaths

        end_stopped(found.stopped_by, f"dartrl eval --resume {RunPaths(run_dir).option}" if run_dir else "")


def _chosen(tasks: Sequence[str], episodes: int | None, overrides: Sequence[str]) -> list[str]:
    """Return the overrides of the configuration that follow from the options of the command line."""
    from dart.config.layers import overrides_of
    from dart.config.task_sets import tasks_named

    named = list(tasks_named(tasks)) if tasks else None
    return [*overrides, *overrides_of({"tasks.train": named, "evaluation.seeds_per_task": episodes})]


def _settings(
    checkpoint: Path | None, config: Path | None, run_dir: Path | None, chosen: Sequence[str]
) -> "Config":
    """Return the configuration of the evaluation.

    checkpoint   None: resume the evaluation in `run_dir` with the configuration that it has
    chosen       overrides of the configuration

    Raises ConfigError, RunDirectoryError if there is no run to resume, and UsageError if that run trains.
    """
    from dart.config.config import load_config
    from dart.config.layers import overrides_of
    from dart.core.run_directory import RunPaths, config_to_resume

    if checkpoint is None:
        assert run_dir is not None
        paths = RunPaths(run_dir)
        kept = config_to_resume(paths)
        _refuse_run_that_trains(paths)
        return load_config(kept, [*chosen, *overrides_of({"run.dir": run_dir})])
    of_its_run = RunPaths(checkpoint.resolve().parent.parent).config
    path = config or (of_its_run if of_its_run.is_file() else None)
    fixed = {
        "training.policy": checkpoint.resolve(),
        "training.learner": "none",
        "training.ranks": 1,
        "training.gpus": [],
        "training.lora.rank": 0,
        "run.dir": run_dir,
    }
    return load_config(path, [*chosen, *overrides_of(fixed)])


def _refuse_run_that_trains(paths: "RunPaths") -> None:
    """Raise UsageError if a run is no evaluation.

    To resume it as one would replace its configuration and its report, and it would not train again.
    """
    from dart.config.config import kept_config
    from dart.core.errors import UsageError
    from dart.store.checkpoints import list_checkpoints

    training = kept_config(paths.config).training
    if training.learner == "none":
        return
    versions = list_checkpoints(paths.checkpoints)
    words = [str(versions[-1])] if versions else [str(training.policy), "-c", str(paths.config)]
    raise UsageError(
        f"the run in {paths.root} is not an evaluation: its training.learner is {training.learner!r}, "
        f"expected 'none'; to measure what it trains, use `dartrl eval {shlex.join(words)}`"
    )


def _measure(settings: "Config", *, is_kept: bool, resume: bool) -> "Measurement":
    from rich.console import Console

    from dart.core.run_directory import RunPaths, refuse_at_once
    from dart.inspect.live import open_view

    if is_kept:
        refuse_at_once(RunPaths(settings.run.dir), resume=resume)
    _require_installation(settings, is_named=not resume)
    say_left_out(settings)
    from dart.run import evaluation
    from dart.run.listener import RunListener

    with open_view(Console(stderr=True)) as show:
        listener = RunListener(show)
        if not is_kept:
            return evaluation.evaluate(settings, settings.training.policy, listener=listener)
        measuring = evaluation.measuring(settings, settings.training.policy, settings.run.dir)
        return evaluation.measure(measuring, resume=resume, listener=listener)


def _require_installation(settings: "Config", *, is_named: bool) -> None:
    """Raise UnavailableError if something is missing, such as the checkpoint.

    is_named   whether the command line names the checkpoint, which overrides `training.policy`
    """
    from dart.core.errors import UnavailableError
    from dart.preflight.requirements import require_installation

    try:
        require_installation(settings)
    except UnavailableError as error:
        if not is_named:
            raise
        raise UnavailableError(str(error).replace(OF_A_RUN, OF_AN_EVALUATION)) from error


def _print(found: "Measurement") -> None:
    from rich.console import Console

    from dart.inspect.report import SuccessReport, render, render_pass_rates
    from dart.inspect.terminal_safe import Printable

    for report, rates in found.tables:
        Console().print(Printable(render(SuccessReport(after=report.before, answers=report.answers))))
        if len(rates) > 1:
            Console().print(Printable(render_pass_rates(rates)))
    if found.judges.evaluators:
        say(f"judged by {', '.join(found.judges.evaluators)}; -o json has the hash of each task's file")
