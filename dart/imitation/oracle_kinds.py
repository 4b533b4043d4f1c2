"""The kinds of environments whose oracles can make demonstrations for the small policy."""

from collections.abc import Sequence
from typing import Any

from dart.core.errors import UsageError
from dart.core.suggestions import did_you_mean, near
from dart.environments.browser.demonstrations import OracleKind
from dart.environments.miniwob.demonstrations import MINIWOB
from dart.environments.sites.demonstrations import SITES

ORACLE_KINDS: tuple[OracleKind[Any], ...] = (MINIWOB, SITES)


def oracle_kind_of(tasks: Sequence[str]) -> OracleKind[Any]:
    """Return the kind of environment that all these tasks belong to.

    Raises UsageError if a task has no oracle, or is not of the same kind as the first task.
    """
    known = [task for kind in ORACLE_KINDS for task in kind.tasks]
    for task in tasks:
        if task not in known:
            raise UsageError(f"{task} has no oracle to learn from{did_you_mean(near(task, known))}")
    (kind,) = (kind for kind in ORACLE_KINDS if tasks[0] in kind.tasks)
    if others := [task for task in tasks if task not in kind.tasks]:
        raise UsageError(
            f"{tasks[0]} and {others[0]} are of different kinds of environments; name only tasks of one kind"
        )
    return kind
