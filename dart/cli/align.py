"""`dartrl align`: explore a site, align a policy to it and train it on the site's tasks, in one command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dart.cli.exit_codes import ExitCode, end, end_stopped, errors_as_exit_codes, exit_code_of
from dart.cli.explore import EXPLORE_TASK, load_or_kept, of_site
from dart.cli.options import CONFIGURATION, RUNS, NewRunDir, Overrides
from dart.cli.output import print_fitted, say

if TYPE_CHECKING:
    from dart.config.config import Config

TRAINED_TASK = "easy"
"""Kind of a site's tasks that the last stage trains on by default. Even a policy that has not been trained on
tasks solves some of them."""

DEFAULT_CONFIGURATION = Path("align")


def align(
    site: Annotated[
        str | None,
        typer.Argument(
            metavar="SITE",
            help="What to align to: a site, or a task whose screens are pages.",
            show_default=False,
        ),
    ] = None,
    actions: Annotated[
        int | None,
        typer.Option("--actions", "-n", min=1, help="Number of actions after which the exploration ends."),
    ] = None,
    explorers: Annotated[
        int | None, typer.Option(min=1, help="Number of browsers that explore at the same time.")
    ] = None,
    generic: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder of generic data in ScreenSpot's format, which keep the policy from forgetting other "
            "screens: at least 30 % of the samples in training are generic. May be repeated."
        ),
    ] = None,
    held_out: Annotated[
        Path | None,
        typer.Option(
            help="Generic data that are not trained on. The policy is measured on them before and after, "
            "which shows what it forgot."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help=f"{CONFIGURATION} Default: align.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue the alignment in --run-dir at its first unfinished stage."),
    ] = False,
    overrides: Overrides = None,
    run_dir: NewRunDir = None,
) -> None:
    """Align a policy to a site: explore it, train the policy to find its elements, then to do its tasks.

    The command has six stages. It **explores** the site; writes grounding **data** of the screens, where
    screens of one shape are all in the training part or all in the test part; **measures** the base policy on
    the test part; **aligns** the policy, by training it to point at elements of the training part; measures
    the aligned policy; and **trains** that policy on the site's tasks by reinforcement learning. At the end
    it prints a report: accuracy and success before and after, with 95 % intervals.

    The run directory has a folder and a result for each stage. Ctrl-C ends the current stage; `--resume`
    continues this stage and repeats no finished stage. Values that you change with `--resume --set` count for
    the stages that are not finished. `run.minutes` is the time of the last stage.

    **Examples**

    * `dartrl align sites/shop`
    * `dartrl align sites/shop --actions 300 --set grounding.updates=300 --set run.minutes=3`
    * `dartrl align sites/mail --generic runs/pages/train --held-out runs/pages/held-out`
    * `dartrl align --resume --run-dir runs/align-sites-shop`
    """
    if site is None and not (resume and run_dir):
        end(
            "name the site, as in `dartrl align sites/shop`, or continue an alignment with --resume "
            "--run-dir DIR",
            ExitCode.USAGE,
        )
    from dart.alignment.stage_configs import with_places
    from dart.config.layers import overrides_of

    folder = run_dir or RUNS / f"align-{(site or '').replace('/', '-')}"
    if resume:
        _refuse_late(actions, explorers, folder)
    named = None if resume or site is None else site.removesuffix(f"/{EXPLORE_TASK}")
    given = of_site(named, TRAINED_TASK) | {
        "exploration.actions": actions,
        "exploration.explorers": explorers,
        "grounding.data": generic or None,
        "grounding.held_out": held_out,
    }
    chosen = [*overrides_of(given), *(overrides or []), *overrides_of({"run.dir": folder.absolute()})]
    settings = with_places(load_or_kept(config, chosen, folder, resume=resume, default=DEFAULT_CONFIGURATION))
    with errors_as_exit_codes(folder):
        _align(settings, folder, resume=resume)


def _refuse_late(actions: int | None, explorers: int | None, folder: Path) -> None:
    """End the command if --actions or --explorers is given and the exploration in `folder` is finished."""
    from dart.alignment.folder import AlignmentFolder
    from dart.alignment.stages import AlignmentStage

    if (actions or explorers) and AlignmentStage.EXPLORE in AlignmentFolder(folder).results():
        end(
            f"the exploration in {folder} is finished, and later stages build on it: leave out --actions and "
            "--explorers, or begin a new alignment with another --run-dir",
            ExitCode.USAGE,
        )


def _align(config: "Config", folder: Path, *, resume: bool) -> None:
    from dart.alignment.folder import refuse_unfit_folder
    from dart.alignment.stage_configs import refuse_unfit_files, refuse_unfit_settings
    from dart.preflight.requirements import missing_packages, require_installation

    refuse_unfit_folder(folder, resume=resume)
    refuse_unfit_settings(config)
    require_installation(config, checks=(missing_packages,))
    refuse_unfit_files(config)
    require_installation(config)
    from dart.alignment import loop
    from dart.alignment.report import drawn
    from dart.core.run_directory import RunPaths

    try:
        result = loop.align(config, resume=resume, say=say)
    except loop.StageFailed as failed:
        end(str(failed), exit_code_of(failed.cause))
    if result.report is None:
        command = f"dartrl align --resume {RunPaths(folder).option}"
        end_stopped(result.stopped_by, command, during=f" in the stage {result.stage}")
    print_fitted(drawn(result.report))
    say(f"{folder}: report.json, align/ (the aligned policy), train/ (the run that trained it)")
