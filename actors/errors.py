"""The errors of actors.

ActorError
├── AskError                 an ask that ended without an answer (invariant ask-ends)
│   ├── ActorDied            the asked actor ended, was restarted, or never existed
│   ├── AskTimeout           the deadline passed; says what the actor was doing
│   └── Refused              the actor did not take the message: unknown type, wrong incarnation
├── MailboxFull              the receiver is too slow or suspended; the message was not sent
├── MessageTooLarge          send a reference (a path, a hash) instead
├── MalformedMessage         signed bytes that this code cannot read
├── Unauthenticated          bytes not signed with this run's key; never decoded
├── LinkedActorEnded         an actor ended abnormally that the raising actor is linked to
├── WorkOverdue              blocking work in a worker thread passed its deadline
├── InvalidHost              the name of a host, or what it declares, makes no sense
├── WireClosed               the agent that carries frames to other hosts does not listen, or has ended
├── NotReady                 actors did not get ready in time
├── ChildNotStarted          no process could be forked for an actor
└── SystemStartFailed        the actor system did not come up
"""


class ActorError(Exception):
    """The base of all errors of actors."""


class AskError(ActorError):
    """An ask ended without an answer."""


class ActorDied(AskError):
    """The asked actor ended before it answered."""


class AskTimeout(AskError):
    """No answer within the deadline."""


class Refused(AskError):
    """The receiver refused the message; the text is its reason."""


class MailboxFull(ActorError):
    """The receiver's mailbox is full; nothing was sent."""


class MessageTooLarge(ActorError):
    """The message is over the limit for mail."""


class MalformedMessage(ActorError):
    """The frame is authentic but not a message this code knows."""


class Unauthenticated(ActorError):
    """The frame is not signed with this run's key."""


class LinkedActorEnded(ActorError):
    """An actor ended abnormally, and the actor that raises this was linked to it and ends as well."""


class WorkOverdue(ActorError):
    """Work handed to a worker thread did not end in time."""


class NotReady(ActorError):
    """Actors did not get ready in time; the text names them and their states."""


class ChildNotStarted(ActorError):
    """No process could be forked."""


class SystemStartFailed(ActorError):
    """The actor system could not be started."""


class InvalidHost(ActorError):
    """The name of a host cannot be used."""


class WireClosed(ActorError):
    """There is no way to other hosts: their agent does not listen, or closed the connection."""
