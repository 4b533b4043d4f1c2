"""`dartrl doctor`: whether what a run has kept is whole."""

import json
from pathlib import Path
from typing import Annotated

import typer

from dart.cli.boundary import errors_as_exit_codes
from dart.cli.exit_codes import ExitCode
from dart.cli.options import AsJson, RunDir
from dart.cli.record import recorded


def doctor(
    data: Annotated[
        bool,
        typer.Option(
            "--data", help="Check the record, the screenshots and the checkpoints: so far all it can check."
        ),
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="With --data: read every screenshot and checkpoint.")
    ] = False,
    run_dir: RunDir = None,
    as_json: AsJson = False,
) -> None:
    """Check a run: its books, its record against itself, and the files it names. It only reads.

    Works on a running run, too. Exit code 0: sound, 1: something was found, 3: there is no such run.

    **Examples**

    * `dartrl doctor --data`
    * `dartrl doctor --data --full --run-dir runs/laptop`
    """
    with errors_as_exit_codes():
        if not data:
            raise typer.BadParameter("name what to check: `dartrl doctor --data` checks what a run has kept")
        _check_data(run_dir, full=full, as_json=as_json)


def _check_data(run_dir: Path | None, *, full: bool, as_json: bool) -> None:
    from dataclasses import asdict

    from dart.config import load_config
    from dart.store.check import check
    from dart.store.reader import StoreReader

    paths = recorded(run_dir)
    with StoreReader(paths.store) as store:
        books = store.conservation()
    found = check(paths, load_config(paths.config), full=full)
    if as_json:
        typer.echo(json.dumps({"books": asdict(books), "findings": [asdict(one) for one in found]}))
    else:
        typer.echo(books)
        for finding in found:
            typer.echo(f"{finding}\n  what to do: {finding.remedy}")
        typer.echo(_verdict(len(found)))
    if found:
        raise typer.Exit(ExitCode.FAILED)


def _verdict(findings: int) -> str:
    if not findings:
        return "the data is sound"
    return "1 finding" if findings == 1 else f"{findings} findings"
