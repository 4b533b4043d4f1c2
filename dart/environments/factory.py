"""Creates the environment that a configuration names, with its added latency and its injected faults."""

import inspect
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

WITHOUT_DEFAULT = ("reset", "observe", "step", "evaluate", "healthy")
"""The methods of `Environment` that each environment defines by itself."""


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
    Raises ConfigurationError if the kind's row names no function, or one that makes no whole environment.
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
    function = named_function(make)
    _refuse_wrong_function(make, function, (config, name, paths))
    made: Breakable = function(config, name, paths)
    if Environment not in type(made).__mro__:
        raise ConfigurationError(
            f"{make}, which makes environments of the kind {config.environments.kind!r}, must return an "
            f"instance of a subclass of dart.environments.protocol.Environment, got one of "
            f"{type(made).__module__}.{type(made).__qualname__}: make this class a subclass of Environment"
        )
    _refuse_wrong_class(make, type(made))
    return made


def _refuse_wrong_function(make: str, function: Callable[..., object], given: tuple[object, ...]) -> None:
    """Raise ConfigurationError unless `function` can be called with these arguments and returns at once."""
    expected = f"{make} must be a function `def make(config, name, paths)`"
    if inspect.iscoroutinefunction(function):
        raise ConfigurationError(f"{expected}, got an `async def`: let reset await what it needs")
    try:
        inspect.signature(function).bind(*given)
    except ValueError:
        return  # a function of a compiled module may have no signature
    except TypeError as error:
        raise ConfigurationError(
            f"{expected} of the configuration, the name of the actor and the paths of the run: {error}"
        ) from error


def _refuse_wrong_class(make: str, environment: type[Environment]) -> None:
    """Raise ConfigurationError if a class lacks a method that has no default, or has a method of another
    kind that would fail silently: what an `async def` returns counts as true."""
    whose = f"{environment.__qualname__}, of which {make} makes environments,"
    lacks = [name for name in WITHOUT_DEFAULT if getattr(environment, name) is getattr(Environment, name)]
    if lacks:
        raise ConfigurationError(
            f"{whose} must define {', '.join(lacks)} as dart.environments.protocol.Environment describes"
        )
    if inspect.iscoroutinefunction(environment.is_infeasible):
        raise ConfigurationError(f"{whose} must define is_infeasible with `def`, got an `async def`")
