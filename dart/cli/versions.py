"""`dartrl policy versions` and `dartrl checkpoints list`: what training made, and what of it is kept."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dart.cli.options import RunDir
from dart.cli.output import Column, Format, Output, print_list
from dart.cli.record import explained, recorded

if TYPE_CHECKING:
    from dart.inspect.policy_versions import CheckpointRow, VersionRow

policy_app = typer.Typer(help="The policy versions that a run made.", no_args_is_help=True)
checkpoints_app = typer.Typer(help="The checkpoints that a run keeps.", no_args_is_help=True)


@policy_app.command()
def versions(
    run_dir: RunDir = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, metavar="N", help="How many, the newest; 0: all.")
    ] = 50,
    output: Output = Format.TABLE,
) -> None:
    """Show policy versions: when each was made, who serves it now, and the figures of its update.

    **Examples**

    * `dartrl policy versions`
    * `dartrl policy versions -n 0 -o jsonl | jq -c '[.version, .metrics.staleness_max]'`
    """
    with explained(run_dir):
        _versions(run_dir, lines, output)


@checkpoints_app.command("list")
def list_checkpoints(run_dir: RunDir = None, output: Output = Format.TABLE) -> None:
    """Show every checkpoint folder: its version, its size, and whether it was written to its end.

    `dartrl doctor --data --full` also compares every file with the hash kept beside it.

    **Examples**

    * `dartrl checkpoints list`
    * `dartrl eval $(dartrl checkpoints list -o json | jq -r '.[-1].folder')`
    """
    with explained(run_dir):
        _checkpoints(run_dir, output)


def _versions(run_dir: Path | None, lines: int, output: Format) -> None:
    from dart.inspect.policy_versions import read_versions
    from dart.inspect.time_format import clock

    def figure(name: str, digits: int) -> "Column[VersionRow]":
        def value(row: "VersionRow") -> str | None:
            return f"{row.metrics[name]:.{digits}f}" if name in row.metrics else None

        return Column(name.replace("_", " "), value, is_number=True)

    columns: list[Column[VersionRow]] = [
        Column("version", lambda row: row.version, is_number=True),
        Column("made", lambda row: clock(row.created_unix_s)),
        *(figure(name, digits) for name, digits in FIGURES.items()),
        Column("served by", lambda row: ", ".join(row.served_by)),
        Column("checkpoint", lambda row: row.checkpoint if row.is_kept else "removed", is_wide=True),
    ]
    print_list(read_versions(recorded(run_dir))[-lines:], columns, output, empty="no version was made yet")


FIGURES = {"steps": 0, "loss": 4, "kl": 5, "entropy": 3, "grad_norm": 2, "staleness_mean": 2}
"""Figures of an update that the table shows, with their digits; JSON has them all."""


def _checkpoints(run_dir: Path | None, output: Format) -> None:
    from dart.inspect.policy_versions import read_checkpoints
    from dart.inspect.time_format import clock

    columns: list[Column[CheckpointRow]] = [
        Column("version", lambda row: row.version, is_number=True),
        Column("written", lambda row: clock(row.written_unix_s)),
        Column("size MiB", lambda row: f"{row.size_bytes / 2**20:.1f}", is_number=True),
        Column("", lambda row: "" if row.is_complete else "not written to its end"),
        Column("folder", lambda row: row.folder),
    ]
    print_list(read_checkpoints(recorded(run_dir)), columns, output, empty="no checkpoint was written yet")
