"""What an actor is given by the process it lives in: its identity, and the calls it may make there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


class Runtime(Protocol):
    """The process around an actor. `thespian_host` implements it; tests use one in memory."""

    def watch(self, fd: int, ready: Callable[[], None]) -> None:
        """Call `ready` on the actor's thread whenever `fd` is readable."""

    def unwatch(self, fd: int) -> None: ...

    def wake_at(self, monotonic_s: float) -> None:
        """Call the actor's `turn` at this moment at the latest."""

    def spawn(self, boot: Mapping[str, Any]) -> Any:
        """Start a child actor process; supervisors only."""

    def pidfd(self, pid: int) -> int:
        """A descriptor that becomes readable when the process ends. Raises ProcessLookupError after that."""

    def exit(self, code: int) -> None:
        """End this process now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The name, place and settings of one incarnation of an actor, and the folders of its run."""

    name: str
    parent: str
    slot: int
    incarnation: int
    run_dir: Path
    mail_dir: Path
    beat_s: float = 0.25
    """How often the actor writes to the board that it runs."""
    probe_every_s: float = 0.0
    """How often `on_probe` is called; 0 for never."""
    prints_reports: bool = False
    """Whether a supervisor also prints why a child ended."""


def identity_of(boot: Mapping[str, Any]) -> Identity:
    """Read the identity from the boot map of a supervisor; keys that are missing have their defaults."""
    optional = {key: float(boot[key]) for key in ("beat_s", "probe_every_s") if key in boot}
    return Identity(
        name=boot["name"],
        parent=boot["parent"],
        slot=boot["slot"],
        incarnation=boot["incarnation"],
        run_dir=Path(boot["run_dir"]),
        mail_dir=Path(boot["mail_dir"]),
        prints_reports=bool(boot.get("prints_reports", False)),
        **optional,
    )
