"""Health checks of a run: is it alive, and can it play now? They ask no actor and do not read the record."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from dart.core.errors import DartError
from dart.core.run_directory import RunPaths, holder
from dart.inspect.actor_table import read_actors
from dart.inspect.processes import state_of_main
from dart.inspect.snapshot import ActorRow

ROOT_SILENT_S = 20.0
"""A root supervisor that gave no beat for this long counts as hanging or suspended, and the main process ends
the run (`dart.run.app`). A root supervisor that works beats four times a second."""

LOADING = ("generate", "load")
"""What the board shows as the work of an engine that is loading a version. With
`rollout.weight_update = "drain"` the engine first completes its requests, which shows as `generate`."""


def liveness_problems(paths: RunPaths) -> list[str]:
    """Say why the run needs a restart; empty while its main process runs and its root supervisor beats."""
    return _problems(paths, _not_alive)


def readiness_problems(paths: RunPaths) -> list[str]:
    """Say why no episode can be played or stored now.

    The list is empty while the run is alive, the store takes writes, an engine serves a policy or loads a new
    version, and an environment is up.
    """
    return _problems(paths, _not_ready)


def _problems(paths: RunPaths, find: Callable[[Sequence[ActorRow]], Iterator[str]]) -> list[str]:
    try:
        pid = holder(paths.root)
        if pid is None:
            return ["the run is not running"]
        if wrong := state_of_main(paths.root, pid):
            return [f"the main process {pid} is {wrong}"]
        return list(find(read_actors(paths.root)))
    except DartError as error:
        return [str(error)]


def _not_alive(actors: Sequence[ActorRow]) -> Iterator[str]:
    root = next((one for one in actors if not one.parent), None)
    if root is None:
        yield "there is no root supervisor yet"
    elif root.process != "alive":
        yield f"the root supervisor is {root.process}"
    elif (silent_s := root.beat_age_s or 0.0) > ROOT_SILENT_S:
        yield f"the root supervisor gave no sign of life for {silent_s:.0f} s"


def _not_ready(actors: Sequence[ActorRow]) -> Iterator[str]:
    yield from _not_alive(actors)
    well = [one.name for one in actors if one.is_well]
    if "store" not in well:
        yield "the store takes no writes"
    if not any(one.name.startswith("rollout-") and (one.is_well or _loads(one)) for one in actors):
        yield "no engine serves a policy"
    if not any(name.startswith("env-") for name in well):
        yield "no environment is up"


def _loads(engine: ActorRow) -> bool:
    """Whether a running engine is loading another version. Such an engine counts as serving: requests wait.

    An engine that is still starting is not meant: its first version is loaded as part of the start. An engine
    that loads for longer than `rollout.load_deadline_s` ends itself.
    """
    return replace(engine, ready=True).is_well and engine.work in LOADING
