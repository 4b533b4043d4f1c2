"""`dartrl eval`: measure a checkpoint, apart from training."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dart.cli.exit_codes import ExitCode, code_of_signal, end, errors_as_exit_codes
from dart.cli.options import CONFIGURATION, Overrides
from dart.cli.output import Format, Output, print_data

if TYPE_CHECKING:
    from dart.config.config import Config
    from dart.run.evaluation import Measurement

NO_VERIFIER = (
    "no verifier can choose the best of {n} episodes: it would have to judge whole episodes, and none does. "
    "evaluation.verifier judges where a click goes; it chooses among the proposals of a grounding model "
    "(dartrl ground eval). Leave --best-of out and ask for --episodes {n}: pass@{n} says how often at least "
    "one of {n} episodes succeeds, and no verifier does better"
)


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
    best_of: Annotated[
        int | None,
        typer.Option(min=2, help="Let a verifier choose the best of so many episodes; refused without one."),
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(
            help="Keep the evaluation in this new directory. Default: nothing is kept but the output."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the evaluation in --run-dir.")] = False,
    overrides: Overrides = None,
    output: Output = Format.TABLE,
) -> None:
    """Measure a checkpoint on held-out seeds: success by task, pass@1 and pass@k, with intervals.

    Answers are sampled, and for some seeds also the most likely ones (evaluation.greedy_seeds_per_task). An
    episode without a result is left out of the rates and counted below the table.

    `dartrl eval rescore RUN` judges the stored episodes of a run of OSWorld by other evaluators. For a
    checkpoint in a folder of this name, write `./rescore`.

    **Examples**

    * `dartrl eval configs/base-policy`
    * `dartrl eval runs/laptop/checkpoints/v000042 --episodes 100`
    * `dartrl eval models/UI-TARS-1.5-7B -c osworld-uitars-7b --tasks osworld-361 -k 4 --run-dir runs/base`
    * `dartrl eval --resume --run-dir runs/base`
    """
    if best_of is not None:
        end(NO_VERIFIER.format(n=best_of), ExitCode.USAGE)
    if resume != (checkpoint is None) or (resume and run_dir is None):
        end(
            "name a checkpoint to measure, or an evaluation to go on with: --resume --run-dir DIR",
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
        go_on = f"; go on with dartrl eval --resume --run-dir {run_dir}" if run_dir else ""
        end(f"ended by signal {found.stopped_by}{go_on}", code_of_signal(found.stopped_by))


def _chosen(tasks: Sequence[str], episodes: int | None, overrides: Sequence[str]) -> list[str]:
    """Return the settings of the configuration that the command line changes."""
    from dart.config.layers import literal
    from dart.config.task_sets import tasks_named

    chosen = list(overrides)
    if tasks:
        listed = ", ".join(literal(task) for task in tasks_named(tasks))
        chosen.append(f"tasks.train=[{listed}]")
    if episodes is not None:
        chosen.append(f"evaluation.seeds_per_task={episodes}")
    return chosen


def _settings(
    checkpoint: Path | None, config: Path | None, run_dir: Path | None, chosen: Sequence[str]
) -> "Config":
    """Return the configuration of the evaluation: a new one of a checkpoint, or that of the one to resume."""
    from dart.config.config import load_config
    from dart.config.layers import literal
    from dart.core.run_directory import RunPaths

    if checkpoint is None:
        assert run_dir is not None
        return load_config(RunPaths(run_dir).config, [*chosen, f"run.dir={literal(str(run_dir))}"])
    of_its_run = RunPaths(checkpoint.resolve().parent.parent).config
    path = config or (of_its_run if of_its_run.is_file() else None)
    policy = [f"training.policy={literal(str(checkpoint.resolve()))}", 'training.learner="none"']
    directory = [f"run.dir={literal(str(run_dir))}"] if run_dir else []
    return load_config(
        path, [*chosen, *policy, "training.ranks=1", "training.gpus=[]", "training.lora.rank=0", *directory]
    )


def _measure(settings: "Config", *, is_kept: bool, resume: bool) -> "Measurement":
    from rich.console import Console

    from dart.core.run_directory import RunPaths, refuse_at_once
    from dart.inspect.live import open_view
    from dart.preflight.requirements import require_installation

    if is_kept:
        refuse_at_once(RunPaths(settings.run.dir), resume=resume)
    require_installation(settings)
    from dart.run import evaluation
    from dart.run.listener import RunListener

    with open_view(Console(stderr=True)) as show:
        listener = RunListener(show)
        if not is_kept:
            return evaluation.evaluate(settings, settings.training.policy, listener=listener)
        measuring = evaluation.measuring(settings, settings.training.policy, settings.run.dir)
        return evaluation.measure(measuring, resume=resume, listener=listener)


def _print(found: "Measurement") -> None:
    from rich.console import Console

    from dart.inspect.report import SuccessReport, render, render_pass_rates
    from dart.inspect.terminal_safe import Printable

    for report, rates in found.tables:
        Console().print(Printable(render(SuccessReport(after=report.before, answers=report.answers))))
        if len(rates) > 1:
            Console().print(Printable(render_pass_rates(rates)))
