"""Creates the environment that a configuration names, with its added latency and its injected faults."""

import shutil
from collections.abc import Callable

from actors.actor import Actor
from dart.config.config import Config
from dart.config.environment_kinds import kind_of
from dart.core.errors import ConfigurationError
from dart.core.run_directory import RunPaths, make_private
from dart.environments.fault_injection import FaultyEnvironment, InjectionLog
from dart.environments.function_names import named_function
from dart.environments.latency import LatencyEnvironment, LatencySampler
from dart.environments.protocol import Environment
from dart.environments.screen_io import Breakable

FAULTS_FOLDER = "faults"
"""Folder in the run directory with one file of injected faults per environment."""


def environment_of(actor: Actor, config: Config) -> Environment:
    """Create the environment of an actor, with an empty scratch folder."""
    identity, paths = actor.identity, RunPaths(actor.identity.run_dir)
    scratch = paths.scratch / identity.name
    shutil.rmtree(scratch, ignore_errors=True)  # a killed browser leaves its profile behind
    make_private(paths.scratch, scratch)
    return make_environment(config, identity.name, identity.incarnation, paths, actor.clock.unix_s)


def make_environment(
    config: Config, name: str, incarnation: int, paths: RunPaths, unix_s: Callable[[], float]
) -> Environment:
    """Create the environment of the actor ``name``. Each incarnation draws other latencies and faults.

    The layer that adds latency wraps the layer that injects faults, because real faults occur at the screen.
    Raises ConfigurationError if the kind's row names no function, or one that makes no environment.
    """
    settings, seed = config.environments, f"{config.run.seed}/{name}/{incarnation}"
    breakable = _made_by_row(config, name, paths)
    environment: Environment = breakable
    if settings.faults.enabled:
        log = InjectionLog(paths.root / FAULTS_FOLDER, name, unix_s)
        environment = FaultyEnvironment(breakable, settings.faults, seed, log)
    if settings.latency.enabled:
        environment = LatencyEnvironment(environment, LatencySampler(settings.latency, seed))
    return environment


def _made_by_row(config: Config, name: str, paths: RunPaths) -> Breakable:
    """Return what the row of the configured kind makes. Raises ConfigurationError unless its class inherits
    from Environment: the same methods are not enough, as those with a default would be missing."""
    make = kind_of(config.environments).make
    made: Breakable = named_function(make)(config, name, paths)
    if Environment not in type(made).__mro__:
        raise ConfigurationError(
            f"{make}, which makes environments of the kind {config.environments.kind!r}, must return an "
            f"instance of a subclass of dart.environments.protocol.Environment, got one of "
            f"{type(made).__module__}.{type(made).__qualname__}: make this class a subclass of Environment"
        )
    return made
