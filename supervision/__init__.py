"""Supervision trees: supervisors start, watch and restart actors. The terms are OTP's.

Users need only the names exported here. Each is imported when it is first used. `docs/supervision.md`
introduces them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from supervision.child_spec import (
        AutoShutdown,
        Backoff,
        Breaker,
        Budget,
        ChildSpec,
        Failure,
        Restart,
        Retirement,
        Strategy,
        SupervisorFlags,
    )
    from supervision.errors import InvalidChildSpec, SupervisionError, TreeGaveUp, TreeNotStarted
    from supervision.messages import (
        ChildCounts,
        Children,
        CountChildren,
        DeleteChild,
        Managed,
        ReleaseChild,
        RestartChild,
        TerminateChild,
        UpdateChild,
        UpdateFlags,
        WhichChildren,
        start_child,
    )
    from supervision.run import supervised, worker
    from supervision.supervisor import Supervisor, dynamic_supervisor_spec, supervisor_spec

_MODULES = ("child_spec", "errors", "messages", "supervisor", "run")
"""The modules that define the exported names, the cheapest to import first."""

__all__ = [
    "AutoShutdown",
    "Backoff",
    "Breaker",
    "Budget",
    "ChildCounts",
    "ChildSpec",
    "Children",
    "CountChildren",
    "DeleteChild",
    "Failure",
    "InvalidChildSpec",
    "Managed",
    "ReleaseChild",
    "Restart",
    "RestartChild",
    "Retirement",
    "Strategy",
    "SupervisionError",
    "Supervisor",
    "SupervisorFlags",
    "TerminateChild",
    "TreeGaveUp",
    "TreeNotStarted",
    "UpdateChild",
    "UpdateFlags",
    "WhichChildren",
    "dynamic_supervisor_spec",
    "start_child",
    "supervised",
    "supervisor_spec",
    "worker",
]


def __getattr__(name: str) -> Any:
    for module_name in _MODULES if name in __all__ else ():
        module = import_module(f"{__name__}.{module_name}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
