"""What the page can change of a run: the requests that the command line makes. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from dart.core.errors import UsageError
from dart.run.control_protocol import (
    ControlOutcome,
    Drain,
    Pause,
    ReleaseActor,
    Request,
    RestartActor,
    Resume,
)

NAME_MOST = 64
"""Characters of an actor's name, as in the protocol."""

STATUS = {
    ControlOutcome.DONE: 200,
    ControlOutcome.UNDER_WAY: 202,
    ControlOutcome.REFUSED: 409,
    ControlOutcome.SILENT: 503,
}
"""The HTTP status of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One kind of change."""

    label: str
    """Text of its button."""
    about: str
    """What it will do, shown before it is confirmed."""
    call: Callable[[str], Request]
    """Makes the request from the name of an actor, which is empty for changes of the whole run."""


ACTIONS: Mapping[str, Action] = {
    "pause": Action(
        label="Pause",
        about="Begin no further episode or update. What runs continues to its end, and all actors stay up. "
        "It lasts until Resume, also over a restart of the run.",
        call=lambda _: Pause(),
    ),
    "resume": Action(
        label="Resume",
        about="Begin episodes and updates again.",
        call=lambda _: Resume(),
    ),
    "drain": Action(
        label="Drain",
        about="Pause until no episode and no update runs: before work on machines. All actors stay up.",
        call=lambda _: Drain(),
    ),
    "restart": Action(
        label="Restart",
        about="End this actor, children first, and start it again; one that hangs is killed. It costs no "
        "restart budget, and those that depend on it may start again with it.",
        call=lambda name: RestartActor(name=name),
    ),
    "release": Action(
        label="Release",
        about="End its quarantine, or its wait before a restart, now; its earlier failures are forgotten.",
        call=lambda name: ReleaseActor(name=name),
    ),
}
OF_THE_RUN = ("pause", "resume", "drain")
OF_AN_ACTOR = ("restart", "release")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedAction:
    """A change that a request asks for."""

    do: str
    name: str
    """Name of the actor; empty for changes of the whole run."""

    @property
    def action(self) -> Action:
        return ACTIONS[self.do]

    @property
    def request(self) -> Request:
        return self.action.call(self.name)

    @property
    def title(self) -> str:
        return f"{self.action.label} {self.name or 'the run'}"

    @property
    def address(self) -> str:
        """Address of the page that asks for confirmation."""
        return f"/confirm?{urlencode({'do': self.do, 'name': self.name} if self.name else {'do': self.do})}"

    @property
    def place(self) -> str:
        """Address of the page it belongs to."""
        return f"/actor?{urlencode({'name': self.name})}" if self.name else "/"


def wanted(values: Mapping[str, str]) -> RequestedAction:
    """Read a change from the fields of a form or an address. Raises UsageError for an unknown one."""
    do, name = values.get("do", ""), values.get("name", "")
    if do not in ACTIONS:
        raise UsageError(f"there is no action {do!r}; there are {', '.join(ACTIONS)}")
    if do in OF_THE_RUN and name:
        raise UsageError(f"{do} is about the whole run and names no actor")
    if do in OF_AN_ACTOR and not 0 < len(name) <= NAME_MOST:
        raise UsageError(f"{do} needs the name of an actor")
    return RequestedAction(do=do, name=name)


def offers(place: str, actor: str = "") -> tuple[RequestedAction, ...]:
    """The changes a page offers: the overview those of the run, the page of an actor those of the actor."""
    if actor:
        return tuple(RequestedAction(do=do, name=actor) for do in OF_AN_ACTOR)
    return tuple(RequestedAction(do=do, name="") for do in OF_THE_RUN) if place == "overview" else ()
