"""Plan what a new configuration changes in a run that is running.

Only the limits of supervisors and their children, and the numbers of environments and engines, may change.
Other keys may not, because running actors were started with the old values: after a change, no configuration
would describe the whole run.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from actors.codec import to_plain
from actors.system import RootSpec
from dart.config.config import Config
from dart.config.problems import dotted
from dart.core.errors import ConfigurationError
from dart.run.definition import supervisors
from supervision.child_spec import ChildSpec, SupervisorFlags
from supervision.messages import UpdateChild, UpdateFlags

LIVE = ("supervision.", "environments.count", "rollout.count")
"""Prefixes of the keys that may change in a run that is running."""

_FIXED = frozenset({"id", "actor", "args"})


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a supervisor or of one of its children: the supervisor's name, and the call to send it."""

    supervisor: str
    call: UpdateChild | UpdateFlags


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadPlan:
    """What has to be done to apply a new configuration."""

    keys: tuple[str, ...]
    """The dotted keys whose values differ from the present configuration, sorted."""
    changes: tuple[Change, ...]

    def __str__(self) -> str:
        return f"changed: {', '.join(self.keys)}" if self.keys else "no key of the configuration has changed"


def planned(old: Config, new: Config, tree_of: Callable[[Config], RootSpec]) -> ReloadPlan:
    """Plan the change from one valid configuration to another.

    tree_of   makes the supervision tree for a configuration

    Raises ConfigurationError if a key differs that cannot change in a run that is running, and
    InvalidChildSpec for limits that no supervisor accepts.
    """
    before, after = (dict(dotted(config.model_dump(mode="json"))) for config in (old, new))
    keys = tuple(sorted(key for key in before | after if before.get(key) != after.get(key)))
    fixed = [key for key in keys if not key.startswith(LIVE) or _ends_a_budget(key, before, after)]
    if fixed:
        raise ConfigurationError(
            f"{', '.join(fixed)} cannot change while the run goes on: restore the earlier values, or end the "
            "run with `dartrl down` and start it again"
        )
    return ReloadPlan(keys=keys, changes=tuple(_changes(tree_of(old), tree_of(new))))


def _ends_a_budget(key: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether the change of a key removes a restart budget of a kind of failure.

    A running supervisor can change such a budget but cannot remove it.
    """
    is_budget = ".budgets." in key and key.endswith(".max_seconds")
    return is_budget and bool(before.get(key)) and not after.get(key)


def _changes(old_tree: RootSpec, new_tree: RootSpec) -> Iterator[Change]:
    old = supervisors(old_tree)
    for name, new in supervisors(new_tree).items():
        if differs := _differs(old[name].flags, new.flags):
            yield Change(name, UpdateFlags(changes=differs))
        for id_, spec in new.children.items():
            before = old[name].children.get(id_)
            if before is not None and (differs := _differs(before, spec)):
                yield Change(name, UpdateChild(id=id_, changes=differs))


def _differs(old: ChildSpec | SupervisorFlags, new: ChildSpec | SupervisorFlags) -> dict[str, Any]:
    """Return the new values of the fields that differ, as plain data; empty if none does.

    For a worker with differences, `args` is included.
    """
    names = [field.name for field in fields(new) if field.name not in _FIXED]
    differs = {
        name: to_plain(getattr(new, name)) for name in names if getattr(old, name) != getattr(new, name)
    }
    if differs and isinstance(new, ChildSpec) and "children" not in new.args:
        differs["args"] = dict(new.args)
    return differs
