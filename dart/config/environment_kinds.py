"""The kinds of environments there are (`environments.kind`): one row for each, read wherever kinds differ.

To add a kind, write its environment (`dart.environments.protocol.Environment`), add a row here and its name
to `EnvironmentsSettings.kind`. A row names functions by "module:function", which are imported when they are
called: a browser needs no X libraries, a desktop no HTTP client, and a configuration is read without either.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dart.config.injected_faults import DESKTOP_FAULTS, InjectedFault


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentKind:
    """What is different from kind to kind."""

    make: str
    """(config, name of the actor, paths of the run) to an environment that faults can be injected into."""
    task_ids: str = ""
    """Config to the ids of the installed tasks, none where that cannot be known; empty: any id goes."""
    injectable: frozenset[InjectedFault] = frozenset(InjectedFault)
    """The faults that can be injected into it."""
    content_follows_from_seed: bool = True
    """Whether a task begins differently for each seed."""


KINDS: Mapping[str, EnvironmentKind] = {
    "miniwob": EnvironmentKind(
        make="dart.environments.miniwob.environment:make",
        task_ids="dart.environments.miniwob.pages:tasks_of",
        injectable=frozenset(InjectedFault)
        - DESKTOP_FAULTS,  # a page in a browser has no windows, no applications
    ),
    "simulated": EnvironmentKind(make="dart.environments.simulated:make"),
    "desktop": EnvironmentKind(
        make="dart.environments.desktop.environment:make",
        task_ids="dart.environments.desktop.tasks:tasks_of",
    ),
    "osworld": EnvironmentKind(
        make="dart.environments.osworld.environment:make",
        task_ids="dart.environments.osworld.tasks:tasks_of",
        content_follows_from_seed=False,
    ),
}
