"""What the web page can change in a run, by the same requests as the command line. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from dart.core.errors import UsageError
from dart.run.control_protocol import NAME_MOST, ControlOutcome, Request, request_of

STATUS = {
    ControlOutcome.DONE: 200,
    ControlOutcome.UNDER_WAY: 202,
    ControlOutcome.REFUSED: 409,
    ControlOutcome.SILENT: 503,
}
"""For each outcome of a request to the run, the HTTP status of the page that shows it."""


ACTIONS: Mapping[str, str] = {
    "pause": (
        "Begin no further episode or update. Those in progress continue to their end, and all actors stay "
        "up. The pause lasts until Resume, even if the run is ended and started again."
    ),
    "resume": "Begin episodes and updates again.",
    "drain": (
        "Begin no further episode or update, and wait until none is in progress. All actors stay up. "
        "Use this before work on the machines."
    ),
    "restart": (
        "End this actor, its children first, and start it again. An actor that hangs is killed. This costs "
        "no restart budget. Only this actor and those below it are restarted."
    ),
    "release": "Start this actor now instead of after its quarantine or wait; forget its earlier failures.",
}
"""The changes that the web page offers, and for each the text that the confirmation page shows."""

OF_THE_RUN = ("pause", "resume", "drain")
OF_AN_ACTOR = ("restart", "release")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedAction:
    """A change that an HTTP request asks for."""

    do: str
    name: str
    """Name of the actor; empty for changes of the whole run."""

    @property
    def label(self) -> str:
        """Text of the button for this change."""
        return self.do.capitalize()

    @property
    def about(self) -> str:
        return ACTIONS[self.do]

    @property
    def request(self) -> Request:
        """The request to send to the run. Raises UsageError if the actor's name is missing or too long."""
        return request_of(self.do, **({"name": self.name} if self.name else {}))

    @property
    def title(self) -> str:
        return f"{self.label} {self.name or 'the run'}"

    @property
    def address(self) -> str:
        """Path of the page that asks for confirmation of this change."""
        return f"/confirm?{urlencode({'do': self.do, 'name': self.name} if self.name else {'do': self.do})}"

    @property
    def place(self) -> str:
        """Path of the page that offers this change: the page of the actor, or the overview."""
        return f"/actor?{urlencode({'name': self.name})}" if self.name else "/"


def wanted(values: Mapping[str, str]) -> RequestedAction:
    """Read a change from the fields of a form or an address.

    raises   UsageError for an unknown change, or a name that is missing, too long or not expected
    """
    asked = RequestedAction(do=values.get("do", ""), name=values.get("name", ""))
    if asked.do not in ACTIONS:
        raise UsageError(f"there is no action {asked.do!r}; the actions are {', '.join(ACTIONS)}")
    given = f"got {asked.name[:NAME_MOST]!r}"
    if asked.do in OF_THE_RUN and asked.name:
        raise UsageError(f"{asked.do} is about the whole run and takes no name, {given}")
    if asked.do in OF_AN_ACTOR and not 0 < len(asked.name) <= NAME_MOST:
        raise UsageError(f"{asked.do} needs the name of an actor, at most {NAME_MOST} characters, {given}")
    return asked


def offers(page: str, actor: str) -> tuple[RequestedAction, ...]:
    """Return the changes that a page offers.

    The overview offers changes of the run, and the page of an actor offers changes of this actor; other pages
    offer none.
    """
    offered = {"overview": OF_THE_RUN, "actor": OF_AN_ACTOR}.get(page, ())
    return tuple(RequestedAction(do=do, name=actor if page == "actor" else "") for do in offered)
