"""`dartrl setup` installs what a run needs; `dartrl doctor` checks this machine and the data of a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dart.cli.exit_codes import ExitCode
from dart.cli.options import CONFIGURATION, RUNS, NamedRun, Overrides, RunDir, chosen_here, recorded
from dart.cli.output import Format, Output, print_data, print_list, say
from dart.inspect.formatting import counted
from dart.inspect.tables import Column

if TYPE_CHECKING:
    from dart.core.records import Conservation
    from dart.core.run_directory import RunPaths
    from dart.preflight.doctor import CheckResult, CheckTarget


def setup(
    config: Annotated[
        Path | None, typer.Argument(help=f"{CONFIGURATION} Default: the built-in values.")
    ] = None,
    overrides: Overrides = None,
    check: Annotated[
        bool, typer.Option("--check", help="Install nothing; only say what is missing.")
    ] = False,
) -> None:
    """Install what a configuration needs besides Python packages: the browser and the MiniWoB++ pages.

    The browser is installed through apt, if this user is root or can become root by sudo without a password.
    The pages are installed with the pip of this Python. Every command is printed before it runs. Exit code 69
    if something is still missing afterwards; the message has a line with a remedy for each missing thing.

    **Examples**

    * `dartrl setup`
    * `dartrl setup --check`
    * `dartrl setup --set environments.executable=/opt/chromium/headless_shell`
    """
    from dart.config.config import load_config
    from dart.preflight.installer import install, missing_installations
    from dart.preflight.requirements import missing_browser, missing_packages, require_installation

    settings = load_config(config, overrides or [])
    for command in [] if check else missing_installations(settings):
        install(command, announce=lambda text: say(f"setup: {text}", err=True))
    require_installation(settings, checks=(missing_packages, missing_browser))
    say("nothing is missing")


def doctor(
    data: Annotated[
        bool,
        typer.Option("--data", help="Check only the data of a run: its record, screenshots and checkpoints."),
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="With --data: read every screenshot and checkpoint.")
    ] = False,
    port: Annotated[
        list[int] | None,
        typer.Option(min=1, max=65535, help="Check whether this port on loopback is free; may be repeated."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help=f"{CONFIGURATION} Default: the run's, or the built-in values."),
    ] = None,
    run_dir: RunDir = None,
    output: Output = Format.TABLE,
) -> None:
    """Check Python and its packages, GPU, browser, policy, disk, ports; and, if there is a run, the fates of
    its rollouts, its record, leftover processes and leftover machines. Nothing is changed; each finding says
    what to do.

    Works on a running run too. Exit code 0: sound, 1: something is wrong, 3: there is no such run.

    **Examples**

    * `dartrl doctor`
    * `dartrl doctor --config laptop --port 9109`
    * `dartrl doctor --data --full --run-dir runs/laptop`
    """
    if data:
        _check_data(run_dir, full=full, output=output)
    else:
        _check_all(_target(run_dir, config, port or []), output)


def _target(run_dir: NamedRun, file: Path | None, ports: list[int]) -> "CheckTarget":
    """Return what to check: a configuration, ports, and the named run or else the newest run in runs/.

    If there is no run, or the newest start left no configuration, the target has no paths. Without `file`,
    the configuration is that of the run, or the built-in values if there is no run.
    """
    from dart.config.config import kept_config, load_config
    from dart.core.errors import UsageError
    from dart.core.run_directory import is_own
    from dart.preflight.doctor import CheckTarget

    paths = recorded(chosen_here(run_dir)) if run_dir or _newest_is_kept() else None
    if paths and not file and not is_own(paths.root):
        raise UsageError(
            f"the run in {paths.root} belongs to another user, and a check starts programs that its "
            "configuration names: run `dartrl doctor` as that user, or name a configuration of your own with "
            "--config; with --data it checks the data alone"
        )
    config = kept_config(paths.config) if paths and not file else load_config(file)
    return CheckTarget(config=config, paths=paths, ports=tuple(ports))


def _newest_is_kept() -> bool:
    """Return whether the run that `chosen` finds has a configuration; a start that failed early has none."""
    from dart.core.run_directory import RunPaths

    return any(RUNS.glob("*/lock")) and RunPaths(chosen_here(None)).config.exists()


def _check_all(target: "CheckTarget", output: Format) -> None:
    from dart.preflight.doctor import CheckVerdict, run_checks

    checked = run_checks(target)
    print_list(checked, columns(), output)
    wrong = sum(one.verdict is CheckVerdict.WRONG for one in checked)
    if not output.is_data:
        say(counted(wrong, "finding") if wrong else "nothing is wrong")
    if wrong:
        raise typer.Exit(ExitCode.FAILED)


def columns() -> "list[Column[CheckResult]]":
    """Return the columns of the table of check results."""
    from rich.text import Text

    from dart.preflight.doctor import CheckVerdict

    styles = {CheckVerdict.FINE: "green", CheckVerdict.NOTE: "yellow", CheckVerdict.WRONG: "bold red"}

    def with_remedy(one: "CheckResult") -> str:
        return f"{one.found}\n  what to do: {one.remedy}" if one.remedy else one.found

    return [
        Column("", lambda one: Text(one.verdict.value, style=styles[one.verdict])),
        Column("topic", lambda one: one.topic),
        Column("found", with_remedy, folds=True),
    ]


def _check_data(run_dir: NamedRun, *, full: bool, output: Format) -> None:
    from dataclasses import asdict

    from dart.config.config import kept_config
    from dart.store.integrity import check

    paths = recorded(chosen_here(run_dir))
    found = check(paths, kept_config(paths.config), full=full)
    books = _books(paths)
    if output.is_data:
        print_data({"books": asdict(books) if books else None, "findings": found}, output)
    else:
        if books:
            say(str(books))
        for finding in found:
            say(f"{finding}\n  what to do: {finding.remedy}")
        say(counted(len(found), "finding") if found else "the data is sound")
    if found:
        raise typer.Exit(ExitCode.FAILED)


def _books(paths: "RunPaths") -> "Conservation | None":
    """Return the number of rollouts by fate; None if the record cannot be read."""
    from dart.store.errors import StoreUnavailable
    from dart.store.reader import StoreReader

    try:
        with StoreReader(paths.record) as store:
            return store.conservation()
    except StoreUnavailable:
        return None
