"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set one value of the configuration; may be repeated."),
]

RunDir = Annotated[
    Path | None,
    typer.Option(
        "--run-dir", "-r", help="Directory of the run. Default: the one running, or the newest in runs/."
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="The same as -o json.")]

ID_MOST = 10**18 - 1
"""Largest number of a rollout or a demonstration; the record counts in 64 bits."""

RUNS = Path("runs")
"""Where a run is looked for when none is named."""

CONFIGURATION = "TOML file, or the name of a bundled configuration such as `laptop`."
"""Help of every argument that names a configuration."""
