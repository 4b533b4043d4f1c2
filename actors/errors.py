"""Everything an actor can tell its caller went wrong.

ActorError
├── AskError                 an ask that did not bring an answer (invariant ask-ends)
│   ├── ActorDied            the asked actor ended, was restarted, or was never there
│   ├── AskTimeout           the deadline passed; says what the actor was doing
│   └── Refused              the actor would not take the message: unknown type, wrong incarnation
├── MailboxFull              the receiver is too slow or stopped; the message was not sent
├── MessageTooLarge          send a reference (a path, a hash) instead
├── MalformedMessage         bytes that are no message of ours
├── Unauthenticated          bytes not signed with this run's key; never decoded
├── LinkedActorEnded     an actor this one is linked to ended abnormally
├── WorkOverdue              blocking work in a worker thread passed its deadline
├── LinkNotAllowed           a link between machines lacks a key, or its key or address is not safe
├── NotReady                 actors that were waited for did not get ready in time
├── ChildNotStarted          no process could be forked for an actor
└── SystemStartFailed        the actor system did not come up
"""


class ActorError(Exception):
    """Root of the tree."""


class AskError(ActorError):
    """An ask ended without an answer."""


class ActorDied(AskError):
    """The asked actor ended before it answered."""


class AskTimeout(AskError):
    """No answer within the deadline."""


class Refused(AskError):
    """The receiver refused the message and said why."""


class MailboxFull(ActorError):
    """The receiver's mailbox took no more; nothing was sent."""


class MessageTooLarge(ActorError):
    """The message is over the limit for mail."""


class MalformedMessage(ActorError):
    """The frame is authentic but not a message this code knows."""


class Unauthenticated(ActorError):
    """The frame's signature is not this run's."""


class LinkedActorEnded(ActorError):
    """An actor this one is linked to ended abnormally; this one ends with it."""


class WorkOverdue(ActorError):
    """Work handed to a worker thread did not end in time."""


class NotReady(ActorError):
    """Actors did not get ready in time; says which, and how they are instead."""


class ChildNotStarted(ActorError):
    """No process could be forked."""


class SystemStartFailed(ActorError):
    """The actor system could not be started."""


class LinkNotAllowed(ActorError):
    """No link is opened: a key is missing, readable by others, or the address is not one address."""
