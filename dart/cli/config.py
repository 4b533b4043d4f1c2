"""`dartrl config`: check, show and compare configurations."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from dart.cli.exit_codes import ExitCode
from dart.cli.options import CONFIGURATION, Overrides
from dart.cli.output import Format, Output, print_list, say
from dart.inspect.tables import Column

config_app = typer.Typer(help="Check, show and compare configurations.", no_args_is_help=True)


@config_app.command()
def check(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Run files, cluster files or names of bundled configurations, each checked by itself."
        ),
    ],
    overrides: Overrides = None,
) -> None:
    """Report every problem of every file at once, and note environments that could only wait.

    Of a cluster file, its own keys are checked and then, if they are right, the run file that it names with
    the values of `[set]`. `dartrl up FILE --dry-run` checks the machines.

    Exit code 78 if a file has a problem, 69 if a package that `tracking.writers` needs is not installed.

    **Examples**

    * `dartrl config check laptop smoke`
    * `dartrl config check run.toml --set training.lr=1e-4`
    """
    from dart.config.cluster import is_cluster_file, load_cluster
    from dart.config.config import ConfigError, load_config
    from dart.config.problems import Problem
    from dart.core.errors import UnavailableError
    from dart.preflight.idle_environments import idle_lines
    from dart.preflight.requirements import missing_trackers

    problems: list[Problem] = []
    missing: list[str] = []
    notes: list[str] = []
    for path in files:
        try:
            chosen = overrides or []
            is_cluster = is_cluster_file(path)
            config = load_cluster(path, chosen).run if is_cluster else load_config(path, chosen)
            missing += missing_trackers(config)
            notes += [f"{path}: note: {line}" for line in idle_lines(config)]
        except ConfigError as error:
            problems += [problem for problem in error.problems if problem not in problems]
    if problems:
        raise ConfigError(problems)
    if missing:
        raise UnavailableError("\n".join(dict.fromkeys(missing)))
    say("\n".join([f"{', '.join(map(str, files))}: valid", *notes]))


@config_app.command()
def show(
    file: Annotated[
        Path | None, typer.Argument(help=f"{CONFIGURATION} Default: the built-in values.")
    ] = None,
    overrides: Overrides = None,
    origin: Annotated[
        bool,
        typer.Option(
            "--origin/--no-origin", help="Show the origin of each value: default, a file, or --set."
        ),
    ] = True,
) -> None:
    """Print the resolved configuration as TOML: every key with its value and the origin of the value.

    **Examples**

    * `dartrl config show laptop`
    * `dartrl config show --no-origin --set environments.count=2 > mine.toml`
    """
    from dart.config.config import resolve

    config, origins = resolve(file, overrides or [])
    say(config.to_toml(origins if origin else None).rstrip("\n"))


@config_app.command()
def schema() -> None:
    """Print the JSON schema of a configuration file, with a description of every key. Editors can use it.

    **Examples**

    * `dartrl config schema > dartrl.schema.json`
    """
    import json

    from dart.config.config import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))


@config_app.command()
def diff(
    before: Annotated[Path, typer.Argument(help="A configuration, or the directory of a run.")],
    after: Annotated[Path, typer.Argument(help="A configuration, or the directory of a run.")],
    output: Output = Format.TABLE,
) -> None:
    """Show every key whose value differs between two configurations. A key that a file omits has its default.

    Exit code 0: the configurations are the same, 1: they differ.

    **Examples**

    * `dartrl config diff laptop hard`
    * `dartrl config diff runs/laptop runs/hard -o json`
    """
    from dart.config.config import differences, kept_config, load_config
    from dart.config.layers import literal

    old, new = (
        kept_config(path / "config.toml") if path.is_dir() else load_config(path) for path in (before, after)
    )
    found = [{"key": key, "before": a, "after": b} for key, a, b in differences(old, new)]

    def value(side: str) -> Callable[[Mapping[str, Any]], str | None]:
        return lambda row: None if row[side] is None else literal(row[side])

    columns: list[Column[Mapping[str, Any]]] = [
        Column("key", lambda row: row["key"]),
        Column(str(before), value("before"), width_max=50),
        Column(str(after), value("after"), width_max=50),
    ]
    print_list(found, columns, output, empty="the configurations are the same")
    if found:
        raise typer.Exit(ExitCode.FAILED)
