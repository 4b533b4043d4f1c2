"""The environment a configuration asks for, with the waits and the faults it asks for around it."""

from collections.abc import Callable

from dart.config import Config
from dart.environments.faulty import Breakable, FaultPlan, FaultyEnvironment, InjectionLog
from dart.environments.latency import LatencyEnvironment
from dart.environments.miniwob import CHROMIUM, MiniWobEnvironment
from dart.environments.protocol import Environment
from dart.modelled.environment import ModelledEnvironment
from dart.modelled.latency import Waits
from dart.rundir import RunPaths

FAULTS_FOLDER = "faults"
"""In the run directory: what was injected, by environment."""


def make_environment(
    config: Config, name: str, incarnation: int, paths: RunPaths, unix_s: Callable[[], float]
) -> Environment:
    """The environment of the actor ``name``; each incarnation has waits and faults of its own.

    Faults are below the waits, where the real ones are: on the side of the screen.
    """
    settings, seed = config.environments, f"{config.run.seed}/{name}/{incarnation}"
    breakable = _breakable(config, name, paths)
    environment: Environment = breakable
    if settings.faults.enabled:
        log = InjectionLog(paths.root / FAULTS_FOLDER, name, unix_s)
        environment = FaultyEnvironment(breakable, FaultPlan(settings.faults, seed), log)
    if settings.latency.enabled:
        environment = LatencyEnvironment(environment, Waits(settings.latency, seed))
    return environment


def _breakable(config: Config, name: str, paths: RunPaths) -> Breakable:
    """Only what the kind needs is imported: a browser needs no X libraries, a desktop no HTTP client."""
    settings, scratch, run_dir = config.environments, paths.scratch / name, paths.root
    if settings.kind == "modelled":
        return ModelledEnvironment(config.modelled, config.run.seed)
    if settings.kind == "desktop":
        from dart.environments.desktop.environment import DesktopEnvironment

        return DesktopEnvironment(name, scratch, settings.desktop)
    if settings.kind == "osworld":
        from dart.environments.osworld.environment import make_osworld

        return make_osworld(name, scratch, run_dir, settings.osworld)
    return MiniWobEnvironment(scratch, config.environments.executable or CHROMIUM)
