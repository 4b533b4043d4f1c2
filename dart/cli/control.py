"""Commands that change a running run, such as `dartrl pause`, `dartrl scale` and `dartrl actors restart`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from dart.cli.exit_codes import ExitCode, end
from dart.cli.options import ActorName, NamedRun, RunDir, chosen, with_actors
from dart.cli.output import Format, Output, print_list, say
from dart.core.types import ACTORS_MOST
from dart.inspect.formatting import clock
from dart.inspect.tables import Column

if TYPE_CHECKING:
    from dart.run.actor_conditions import Quarantined
    from dart.run.control_protocol import ControlAnswer

DRAIN_WAIT_S = 60.0
SCALABLE = ("environments", "rollouts")

DrainWait = Annotated[
    float,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        min=0.0,
        max=600.0,
        show_default=False,
        help="Wait at most this long, up to 600 s, until no episode and no update runs; exit code 75 if one "
        "still runs then. "
        f"Default: {DRAIN_WAIT_S:g}.",
    ),
]

Wait = Annotated[
    float | None,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        min=0.0,
        max=600.0,
        help="Wait up to this long until the change is done; exit code 75 if it is not done by then. "
        "Default: do not wait.",
    ),
]


def restart(name: ActorName, wait_s: Wait = None, run_dir: RunDir = None) -> None:
    """End one actor and start it again. A supervisor ends with all actors below it, its children first.

    An actor that has not ended after its `shutdown_s` is killed. The restart spends no restart budget. An
    environment first finishes its episode, if that takes only a moment, or parks it.

    **Examples**

    * `dartrl actors restart env-003`
    * `dartrl actors restart rollout_pool --wait 60`
    """
    _carry_out("restart", run_dir, wait_s, f"{name} runs again", name=name)


def stop(name: ActorName, wait_s: Wait = None, run_dir: RunDir = None) -> None:
    """End one child of a pool. It stays down until `dartrl actors restart` or the next start of the run.

    **Examples**

    * `dartrl actors stop env-003`
    * `dartrl actors stop env-003 --wait 30`
    """
    _carry_out("stop", run_dir, wait_s, f"{name} has ended", name=name)


def pause(wait_s: Wait = None, run_dir: RunDir = None) -> None:
    """Begin no new episode and no new update. Those under way continue to their end, and all actors stay up.

    The pause lasts until `dartrl resume`, even if the run is restarted. A pause uses up `run.minutes`, too.

    **Examples**

    * `dartrl pause`
    * `dartrl pause --run-dir runs/laptop`
    """
    _carry_out("pause", run_dir, wait_s, "nothing new begins")


def resume(wait_s: Wait = None, run_dir: RunDir = None) -> None:
    """Let the run begin episodes and updates again after `dartrl pause` or `dartrl drain`.

    To continue a run that has ended, use `dartrl up` or `dartrl train --resume`.

    **Examples**

    * `dartrl resume`
    * `dartrl resume --run-dir runs/laptop`
    """
    _carry_out("resume", run_dir, wait_s, "episodes and updates begin again")


def drain(wait_s: DrainWait = DRAIN_WAIT_S, run_dir: RunDir = None) -> None:
    """Pause, and wait until no episode and no update runs, for instance before you reboot a machine.

    Exit code 75 if one still runs after `--wait`. All actors stay up; `dartrl resume` ends the pause.

    **Examples**

    * `dartrl drain`
    * `dartrl drain --wait 300 && reboot-the-vms`
    """
    _carry_out("drain", run_dir, wait_s, "no episode and no update runs")


def scale(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="environments=COUNT|rollouts=COUNT",
            help="The new number of environments, of engines (rollouts), or of both.",
        ),
    ],
    wait_s: Wait = None,
    run_dir: RunDir = None,
) -> None:
    """Change the number of environments, of engines, or of both.

    Environments that are removed finish or park their episodes. Engines that are removed first answer the
    requests that they have. If the engines do not fit on the GPUs, the command changes nothing and fails.

    The new numbers are written to the configuration in the run directory. They hold until `dartrl up` starts
    the run with a configuration file or reloads that file.

    **Examples**

    * `dartrl scale environments=24`
    * `dartrl scale environments=4 --wait 60`
    * `dartrl scale rollouts=3 environments=60`
    """
    sizes = _sizes(what)
    until = f"the run has {' and '.join(f'{count} {name}' for name, count in sizes.items())}"
    _carry_out("scale", run_dir, wait_s, until, **sizes)


quarantine_app = typer.Typer(
    help="Environments in quarantine: they failed too often and are not restarted for a while.",
    no_args_is_help=True,
)


QUARANTINE_COLUMNS: "tuple[Column[Quarantined], ...]" = (
    Column("actor", lambda one: one.name),
    Column("until", lambda one: None if one.retry_unix_s is None else clock(one.retry_unix_s)),
    Column("restarts", lambda one: one.restarts, is_number=True),
    Column("last reason", lambda one: one.last_reason),
)


@quarantine_app.command("list")
def list_quarantine(run_dir: RunDir = None, output: Output = Format.TABLE) -> None:
    """Show which environments are in quarantine, why, and when each is started again.

    **Examples**

    * `dartrl quarantine list`
    * `dartrl quarantine list -o jsonl | jq -r .name`
    """
    from dart.run.actor_conditions import quarantined

    found = quarantined(with_actors(run_dir))
    print_list(found, QUARANTINE_COLUMNS, output, empty="no actor is in quarantine")


@quarantine_app.command()
def release(name: ActorName, wait_s: Wait = None, run_dir: RunDir = None) -> None:
    """Start an actor that is in quarantine or waits for a restart, and forget its earlier failures.

    **Examples**

    * `dartrl quarantine release env-003`
    * `dartrl quarantine release env-003 --run-dir runs/laptop`
    """
    _carry_out("release", run_dir, wait_s, f"{name} is being started", name=name)


def _carry_out(do: str, run_dir: NamedRun, wait_s: float | None, until: str, **fields: str | int) -> None:
    """Send a request to the run, print its answer, and end with the exit code of that answer.

    do       name of the request, such as `pause` (`dart.run.control_protocol`)
    until    what is so when the request is done; printed on standard error before a wait
    fields   the other fields of the request
    """
    from dart.run.control_protocol import QUICK_MS, request_of
    from dart.run.steering import request

    wait_ms = QUICK_MS if wait_s is None else int(wait_s * 1000)
    if wait_s:
        say(f"waiting up to {wait_s:g} s until {until}", err=True)
    answer = request(chosen(run_dir), request_of(do, wait_ms=wait_ms, **fields))
    code = code_of(answer, was_waited_for=wait_s is not None)
    if code:
        end(answer.text, code)
    say(answer.text)


def code_of(answer: "ControlAnswer", *, was_waited_for: bool) -> ExitCode:
    """Return the exit code of an answer to a request.

    was_waited_for   whether --wait was given: then a request that is still under way gives TEMPORARY, not OK
    """
    from dart.run.control_protocol import ControlOutcome

    return {
        ControlOutcome.DONE: ExitCode.OK,
        ControlOutcome.UNDER_WAY: ExitCode.TEMPORARY if was_waited_for else ExitCode.OK,
        ControlOutcome.REFUSED: ExitCode.FAILED,
        ControlOutcome.SILENT: ExitCode.UNKNOWN,
    }[answer.outcome]


def _sizes(what: Sequence[str]) -> dict[str, int]:
    """Return the counts in texts such as `environments=24`, by name. Raises UsageError for any other text."""
    from dart.core.errors import UsageError

    sizes: dict[str, int] = {}
    for one in what:
        name, _, count = one.partition("=")
        if name not in SCALABLE:
            raise UsageError(
                f"expected environments=COUNT or rollouts=COUNT such as environments=24, got {one!r}: only "
                "the numbers of environments and engines can change while a run goes on; to change other "
                "values, edit the configuration and start the run again"
            )
        if not count.isdecimal() or not 1 <= int(count) <= ACTORS_MOST:
            raise UsageError(f"expected {name}=COUNT with a count from 1 to {ACTORS_MOST}, got {one!r}")
        sizes[name] = int(count)
    return sizes
