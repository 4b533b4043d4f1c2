"""The table of environment kinds (`environments.kind`). All code that depends on the kind reads this table.

To add a kind to dartrl, write its environment (`dart.environments.protocol.Environment`) and add a row here.
A row names functions as "module:function". A function is imported when it is called, so each kind needs only
its own libraries, and reading a configuration needs none of them. The kind `own` is for environments outside
of this package, which the configuration names (`environments.make`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from dart.config.injected_faults import DESKTOP_FAULTS, InjectedFault

if TYPE_CHECKING:
    from dart.config.sections import EnvironmentsSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentKind:
    """The properties of one kind of environment."""

    make: str
    """Function (config, name of the actor, paths of the run) that returns an environment."""
    task_ids: str = ""
    """Function (config) that returns the ids of the installed tasks, or nothing if they cannot be listed.

    If this field is empty, every id that begins with the name of the kind is a task.
    """
    tasks_key: str = ""
    """Configuration key that names the place of the tasks; empty if no key does."""
    left_out: str = ""
    """Function (config) that returns the tasks that evaluations play and training does not, as a mapping from
    task id to the reason."""
    unplayable: str = ""
    """Function (config) that returns the tasks of `tasks.train` that cannot be played on this system, as a
    mapping from task id to what the task needs."""
    left_behind: str = ""
    """Function (config, paths of the run) that names what environments of a run that does not run have left
    outside of its processes, such as machines of a server; empty if they leave nothing."""
    give_back: str = ""
    """Function (config, paths of the run) that gives this back and returns a
    `dart.environments.leftovers.GivenBack`."""
    injectable: frozenset[InjectedFault] = frozenset(InjectedFault)
    """The faults that can be injected into environments of this kind."""
    is_page: bool = False
    """Whether the screens are pages in Chromium (`environments.executable`). Exploration can read only such
    screens (`Environment.inspect`)."""
    content_follows_from_seed: bool = True
    """Whether a seed determines the content of a task's start screen. If not, all seeds of a task begin
    alike."""
    can_replay: bool = False
    """Whether the same seed and actions give the same screens, bit for bit, so that an episode can go on
    after a fault (`environments.turn_resumes`), and a parked episode where it was stopped."""


KINDS: Mapping[str, EnvironmentKind] = {
    "miniwob": EnvironmentKind(
        make="dart.environments.miniwob.environment:make",
        task_ids="dart.environments.miniwob.own_pages:tasks_of",
        tasks_key="environments.miniwob.pages",
        is_page=True,
        can_replay=True,
        injectable=frozenset(InjectedFault) - DESKTOP_FAULTS,  # a page has no windows and no applications
    ),
    "sites": EnvironmentKind(
        make="dart.environments.sites.environment:make",
        task_ids="dart.environments.sites.tasks:tasks_of",
        is_page=True,
        can_replay=True,
        injectable=frozenset(InjectedFault) - DESKTOP_FAULTS,
    ),
    "grounding": EnvironmentKind(
        make="dart.environments.grounding.environment:make",
        task_ids="dart.environments.grounding.data_sets:tasks_of",
        injectable=frozenset(),  # nothing runs behind a recorded screenshot
    ),
    "simulated": EnvironmentKind(make="dart.environments.simulated:make", can_replay=True),
    "desktop": EnvironmentKind(
        make="dart.environments.desktop.environment:make",
        task_ids="dart.environments.desktop.tasks:tasks_of",
    ),
    "osworld": EnvironmentKind(
        make="dart.environments.osworld.environment:make",
        task_ids="dart.environments.osworld.tasks:tasks_of",
        tasks_key="environments.osworld.tasks",
        left_out="dart.environments.osworld.misjudged:left_out",
        unplayable="dart.environments.osworld.coverage:unplayable",
        left_behind="dart.environments.osworld.give_back:left_behind",
        give_back="dart.environments.osworld.give_back:give_back",
        content_follows_from_seed=False,
    ),
    "own": EnvironmentKind(make="", injectable=frozenset()),
}


def kind_of(environments: "EnvironmentsSettings") -> EnvironmentKind:
    """Return the row of the configured kind, changed by what `environments.make` and `environments.own` say.

    Faults are injected by hooks inside an environment, which one from outside of this package lacks.
    """
    row = KINDS[environments.kind]
    if environments.kind == "own":
        own = environments.own
        row = replace(row, content_follows_from_seed=own.content_follows_from_seed, can_replay=own.can_replay)
    return replace(row, make=environments.make, injectable=frozenset()) if environments.make else row


if TYPE_CHECKING:
    KindName = str
else:
    KindName = Literal[*KINDS]
    """The names that `environments.kind` accepts."""
