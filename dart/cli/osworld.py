"""`dartrl osworld check`: test machines that serve OSWorld's guest protocol before a run uses them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dart.cli.exit_codes import ExitCode, end
from dart.cli.options import CONFIGURATION, Overrides
from dart.cli.output import Format, Output, print_list, say
from dart.inspect.formatting import counted
from dart.inspect.tables import Column

if TYPE_CHECKING:
    from dart.config.sections import OSWorldSettings
    from dart.preflight.osworld import MachineCheckResult

osworld_app = typer.Typer(help="Machines that serve OSWorld's guest protocol.", no_args_is_help=True)


@osworld_app.command()
def check(
    config: Annotated[
        Path | None,
        typer.Argument(help=f"{CONFIGURATION} Only its section [environments.osworld] is used."),
    ] = None,
    addresses: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT,...", help="Machines to check. Default: environments.osworld.addresses."
        ),
    ] = "",
    applications: Annotated[
        str,
        typer.Option(metavar="NAME,...", help="Applications to try, such as os,chrome. Default: all."),
    ] = "",
    deadline_s: Annotated[
        float,
        typer.Option(
            "--deadline",
            min=1.0,
            help="Longest time, in seconds, that the setup of a task, its script or its judgement may take.",
        ),
    ] = 300.0,
    overrides: Overrides = None,
    output: Output = Format.TABLE,
) -> None:
    """Check machines before a run uses them: whether the guest server answers, the screen has the configured
    size, clipboard and desktop work, and the machine reaches the web.

    Then one task of each application is tested. It is set up and has to score 0. If there is a script that
    solves it, the script is played and the task has to score 1. At the end the machine is reverted.

    The check changes the machines: without environments.osworld.revert_command, what the tasks did stays
    there. Exit code 0: all is well; 1: something is wrong. Each finding says what to do.

    **Examples**

    * `dartrl osworld check osworld-uitars-7b --addresses 10.0.0.5:5000`
    * `dartrl osworld check --addresses 10.0.0.5:5000,10.0.0.6:5000 --applications os,chrome -o json`
    """
    import asyncio
    from dataclasses import replace
    from tempfile import TemporaryDirectory

    from dart.config.config import load_config
    from dart.preflight.doctor import CheckVerdict
    from dart.preflight.osworld import Preflight, check_machines

    settings = _chosen(load_config(config, overrides or []).environments.osworld, addresses)
    with TemporaryDirectory(prefix="dartrl-check-") as scratch:
        preflight = Preflight(settings=settings, scratch=Path(scratch), deadline_s=deadline_s)
        preflight = replace(preflight, applications=frozenset(filter(None, applications.split(","))))
        found = asyncio.run(check_machines(preflight, _say_progress))
    print_list(found, columns(), output)
    wrong = sum(one.verdict is CheckVerdict.WRONG for one in found)
    if not output.is_data:
        say(counted(wrong, "finding") if wrong else "nothing is wrong")
    if wrong:
        raise typer.Exit(ExitCode.FAILED)


def _chosen(settings: "OSWorldSettings", addresses: str) -> "OSWorldSettings":
    """Return the settings with the machines of --addresses or, without this option, of the configuration.

    Ends the command if no machine is named, or if an address is not HOST:PORT.
    """
    from dart.config.machine_address import parse_address

    named = [word.strip() for word in addresses.split(",") if word.strip()] or settings.addresses
    if not named:
        end(
            "no machine is named: name machines with --addresses HOST:PORT,..., or name a configuration that "
            "sets environments.osworld.addresses",
            ExitCode.USAGE,
        )
    for address in named:
        try:
            parse_address(address)
        except ValueError as error:
            end(f"--addresses: {error}", ExitCode.USAGE)
    renew = "revert" if settings.revert_command else "keep"
    changed = {"addresses": tuple(dict.fromkeys(named)), "provider": "addresses", "renew": renew}
    return settings.model_copy(update=changed)


def _say_progress(result: "MachineCheckResult") -> None:
    where = f"{result.machine} " if result.machine else ""
    say(f"{where}{result.topic}: {result.verdict.value}", err=True)


def columns() -> "list[Column[MachineCheckResult]]":
    """Return the columns of the table: the machine, then the columns of `dartrl doctor`."""
    from dart.cli import doctor

    verdict, topic, found = doctor.columns()
    return [Column("machine", lambda one: one.machine or "here"), verdict, topic, found]  # type: ignore[list-item]
