"""The errors of supervision trees.

SupervisionError
├── InvalidChildSpec     a field of a child spec or of a supervisor's flags; names field and value
├── NameTaken            another supervisor's child has the name
├── TreeGaveUp           a tree that ended by itself before its work was done; says why
└── TreeNotStarted       a tree whose children did not get ready; says which and why
"""


class SupervisionError(Exception):
    """The base of all errors of supervision trees."""


class InvalidChildSpec(SupervisionError):
    """A field of a child spec or of a supervisor's flags has a value that is not allowed."""


class NameTaken(SupervisionError):
    """Another supervisor's child has the name."""


class TreeGaveUp(SupervisionError):
    """The root supervisor ended by itself, and not because its work was done."""


class TreeNotStarted(SupervisionError):
    """The root supervisor ended, or its children were not ready in time."""
