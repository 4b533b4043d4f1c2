"""What environments have left outside of the processes of a run: machines of a server, containers.

An environment that stops in order gives back what it has. Use these functions for what a killed one has left,
when the run does not run. The row of the kind of environment names what does the work
(`dart.config.environment_kinds`); a kind that leaves nothing names nothing.
"""

from dataclasses import dataclass
from pkgutil import resolve_name

from dart.config.config import Config
from dart.config.environment_kinds import KINDS
from dart.core.run_directory import RunPaths

GIVE_BACK_S = 60.0
"""Longest time that `give_back` takes. A server may take 15 s to stop a machine, and more for many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenBack:
    """What became of the things that environments have left."""

    count: int = 0
    """Number of machines that were given back."""
    left: tuple[str, ...] = ()
    """Which machines may still run, and why: one line for each server and reason."""


def left_behind(config: Config, paths: RunPaths) -> tuple[str, ...]:
    """Name what environments of a run that does not run have left, one line each. Changes nothing."""
    name = KINDS[config.environments.kind].left_behind
    lines: tuple[str, ...] = resolve_name(name)(config, paths) if name else ()
    return lines


def give_back(config: Config, paths: RunPaths) -> GivenBack:
    """Give back what environments of a run that does not run have left. Returns within `GIVE_BACK_S`."""
    name = KINDS[config.environments.kind].give_back
    given: GivenBack = resolve_name(name)(config, paths) if name else GivenBack()
    return given
