"""`dartrl pretrain`."""

from pathlib import Path
from typing import Annotated

import typer

from dart.cli.boundary import end, errors_as_exit_codes
from dart.cli.exit_codes import ExitCode
from dart.cli.output import say


@errors_as_exit_codes()
def pretrain(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder to write the checkpoint to; must not hold one.")
    ],
    seed: Annotated[int, typer.Option(help="Seed of weights, demonstrations and batches.")] = 0,
    updates: Annotated[
        int | None, typer.Option(min=1, help="Optimizer updates; more make a better policy.")
    ] = None,
    demonstrations: Annotated[
        Path | None, typer.Option(help="Folder of demonstrations made before. Default: the oracles play now.")
    ] = None,
) -> None:
    """Make the base policy of the laptop job by imitating scripted demonstrations.

    **Examples**

    * `dartrl pretrain --out runs/base-policy`
    * `dartrl pretrain --out runs/better-base --updates 400 --demonstrations runs/base-policy/demonstrations`
    """
    if (out / "config.json").exists():
        end(f"{out} holds a checkpoint already; choose another folder with --out", ExitCode.CANNOT_CREATE)
    from dart.config.config import Config
    from dart.preflight.requirements import missing_browser, missing_packages, require_installation

    require_installation(Config(), checks=(missing_packages, missing_browser))
    import dart.imitation.pretrain as job

    chosen = (
        job.PretrainConfig(seed=seed) if updates is None else job.PretrainConfig(seed=seed, updates=updates)
    )
    job.main_job(chosen, out, demonstrations, say)
