"""Actors in processes of their own, with mailboxes, monitors and links; supervised by `supervision`.

Users need only the names exported here. Each is imported when it is first used, so that importing one module
of this package costs what that module costs and no more. The test kit is `actors.testing`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors.actor import Actor, Sender, receives
    from actors.board import ActorState
    from actors.codec import message
    from actors.errors import (
        ActorDied,
        ActorError,
        AskError,
        AskTimeout,
        LinkedActorEnded,
        MailboxFull,
        MessageTooLarge,
        NotReady,
        Refused,
        SystemStartFailed,
    )
    from actors.future import Future, Lock
    from actors.monitors import Down, Exit
    from actors.system import ActorSystem, RootSpec
    from actors.system_messages import Stop

__all__ = [
    "Actor",
    "ActorDied",
    "ActorError",
    "ActorState",
    "ActorSystem",
    "AskError",
    "AskTimeout",
    "Down",
    "Exit",
    "Future",
    "LinkedActorEnded",
    "Lock",
    "MailboxFull",
    "MessageTooLarge",
    "NotReady",
    "Refused",
    "RootSpec",
    "Sender",
    "Stop",
    "SystemStartFailed",
    "message",
    "receives",
]

_MODULES = ("errors", "board", "codec", "future", "actor", "monitors", "system_messages", "system")
"""The modules that define the exported names, the cheapest to import first."""


def __getattr__(name: str) -> Any:
    for module_name in _MODULES if name in __all__ else ():
        module = import_module(f"{__name__}.{module_name}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
