"""`dartrl policy`: list the versions of a run, or fetch a policy; `dartrl checkpoints`: list checkpoints."""

from typing import TYPE_CHECKING, Annotated

import typer

from dart.cli.exit_codes import errors_as_exit_codes
from dart.cli.options import Lines, RunDir, chosen_here, reads_run, recorded
from dart.cli.output import Format, Output, print_list, say
from dart.inspect.formatting import clock, number, size
from dart.inspect.tables import Column

if TYPE_CHECKING:
    from dart.inspect.policy_versions import CheckpointRow, VersionRow

policy_app = typer.Typer(
    help="List the policy versions that a run made, or fetch a policy from the hub.", no_args_is_help=True
)
checkpoints_app = typer.Typer(help="The checkpoints that a run keeps.", no_args_is_help=True)


FIGURES = {"steps": 0, "loss": 4, "kl": 5, "entropy": 3, "grad_norm": 2, "staleness_mean": 2}
"""Metrics of an update that the table shows, with their number of decimals. JSON has all metrics."""

WIDE_FIGURES = ("steps", "grad_norm")
"""Those of them that only the wide table shows, so that the engines of a version fit beside the others."""


def _figure(name: str, digits: int) -> "Column[VersionRow]":
    heading = name.removesuffix("_mean").replace("_", " ")
    is_wide = name in WIDE_FIGURES
    return Column(heading, lambda row: number(row.metrics.get(name), digits), is_number=True, is_wide=is_wide)


VERSION_COLUMNS: "tuple[Column[VersionRow], ...]" = (
    Column("version", lambda row: row.version, is_number=True),
    Column("made", lambda row: clock(row.created_unix_s)),
    *(_figure(name, digits) for name, digits in FIGURES.items()),
    Column("served by", lambda row: ", ".join(row.served_by)),
    Column("checkpoint", lambda row: row.checkpoint if row.is_kept else "removed", is_wide=True),
)

CHECKPOINT_COLUMNS: "tuple[Column[CheckpointRow], ...]" = (
    Column("version", lambda row: row.version, is_number=True),
    Column("written", lambda row: clock(row.written_unix_s)),
    Column("size", lambda row: size(row.size_bytes), is_number=True),
    Column("", lambda row: "" if row.is_complete else "not written to its end"),
    Column("folder", lambda row: row.folder, folds=True),
)


@policy_app.command()
@reads_run
def versions(
    run_dir: RunDir = None,
    lines: Lines = 50,
    output: Output = Format.TABLE,
) -> None:
    """Show policy versions: when each was made, the metrics of its update, and which engines serve it now.

    **Examples**

    * `dartrl policy versions`
    * `dartrl policy versions -n 0 -o jsonl | jq -c '[.version, .metrics.staleness_max]'`
    """
    from dart.inspect.policy_versions import read_versions

    made = read_versions(recorded(chosen_here(run_dir)))
    print_list(made[-lines:], VERSION_COLUMNS, output, empty="no version was made yet")


@policy_app.command()
def fetch(
    address: Annotated[
        str, typer.Argument(metavar="hf://OWNER/NAME@REVISION", help="A checkpoint on the Hugging Face hub.")
    ],
    only_config: Annotated[
        bool,
        typer.Option("--only-config", help="Fetch only config.json, enough for `dartrl up --dry-run`."),
    ] = False,
) -> None:
    """Fetch a policy from the Hugging Face hub into a folder in models/hub, and check every file by its hash.

    A branch or tag is resolved to a commit, which is written to hub.json in the folder. The environment
    variable HF_ENDPOINT can name a mirror of the hub, and HF_TOKEN an access token for gated checkpoints.

    **Examples**

    * `dartrl policy fetch hf://Qwen/Qwen2.5-VL-3B-Instruct@main`
    * `dartrl policy fetch hf://ByteDance-Seed/UI-TARS-1.5-7B@main --only-config`
    """
    from dart.config.hub import hub_policy
    from dart.core.errors import UsageError
    from dart.preflight import hub_fetch

    policy = hub_policy(address)
    if policy is None:
        raise UsageError(
            f"expected hf://OWNER/NAME@REVISION such as hf://Qwen/Qwen3-VL-2B@main, got {address!r}"
        )
    with errors_as_exit_codes(policy.folder):
        say(str(hub_fetch.fetch(policy, say, only_config=only_config)))


@checkpoints_app.command("list")
@reads_run
def list_checkpoints(run_dir: RunDir = None, output: Output = Format.TABLE) -> None:
    """Show every checkpoint folder: its version, its size, and whether it was written completely.

    `dartrl doctor --data --full` also compares every file with its hash.

    **Examples**

    * `dartrl checkpoints list`
    * `dartrl eval $(dartrl checkpoints list -o json | jq -r '.[-1].folder')`
    """
    from dart.inspect.policy_versions import read_checkpoints

    kept = read_checkpoints(recorded(chosen_here(run_dir)))
    print_list(kept, CHECKPOINT_COLUMNS, output, empty="no checkpoint was written yet")
