"""The environment a configuration asks for, with the waits and the faults it asks for around it."""

from collections.abc import Callable
from pkgutil import resolve_name

from dart.config.config import Config
from dart.config.environment_kinds import KINDS
from dart.core.run_directory import RunPaths
from dart.environments.fault_injection import Breakable, FaultPlan, FaultyEnvironment, InjectionLog
from dart.environments.latency import LatencyEnvironment
from dart.environments.latency_model import Waits
from dart.environments.protocol import Environment

FAULTS_FOLDER = "faults"
"""In the run directory: what was injected, by environment."""


def make_environment(
    config: Config, name: str, incarnation: int, paths: RunPaths, unix_s: Callable[[], float]
) -> Environment:
    """The environment of the actor ``name``; each incarnation has waits and faults of its own.

    Faults are below the waits, where the real ones are: on the side of the screen.
    """
    settings, seed = config.environments, f"{config.run.seed}/{name}/{incarnation}"
    breakable: Breakable = resolve_name(KINDS[settings.kind].make)(config, name, paths)
    environment: Environment = breakable
    if settings.faults.enabled:
        log = InjectionLog(paths.root / FAULTS_FOLDER, name, unix_s)
        environment = FaultyEnvironment(breakable, FaultPlan(settings.faults, seed), log)
    if settings.latency.enabled:
        environment = LatencyEnvironment(environment, Waits(settings.latency, seed))
    return environment
