"""Actors in processes of their own, with mailboxes, monitors and links; supervised by `supervision`.

The names below are all a user needs. They are looked up when they are first used, so that importing one
module of this package costs what that module costs and no more. The test kit is `actors.testing`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors.actor import Actor, Sender, Stop, receives
    from actors.codec import message
    from actors.completion import Completion, Lock
    from actors.errors import (
        ActorDied,
        ActorError,
        AskError,
        AskTimeout,
        LinkedActorEnded,
        MailboxFull,
        MessageTooLarge,
        Refused,
        SystemStartFailed,
    )
    from actors.monitors import Down, Exit
    from actors.system import ActorSystem, RootSpec

__all__ = [
    "Actor",
    "ActorDied",
    "ActorError",
    "ActorSystem",
    "AskError",
    "AskTimeout",
    "Completion",
    "Down",
    "Exit",
    "LinkedActorEnded",
    "Lock",
    "MailboxFull",
    "MessageTooLarge",
    "Refused",
    "RootSpec",
    "Sender",
    "Stop",
    "SystemStartFailed",
    "message",
    "receives",
]

_HOMES = {
    "actor": ("Actor", "Sender", "Stop", "receives"),
    "codec": ("message",),
    "completion": ("Completion", "Lock"),
    "errors": (
        "ActorDied",
        "ActorError",
        "AskError",
        "AskTimeout",
        "LinkedActorEnded",
        "MailboxFull",
        "MessageTooLarge",
        "Refused",
        "SystemStartFailed",
    ),
    "monitors": ("Down", "Exit"),
    "system": ("ActorSystem", "RootSpec"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
