"""The errors of supervision trees.

SupervisionError
├── InvalidChildSpec     a field of a child spec or of a supervisor's flags; names field and value
├── NameTaken            another supervisor's child has the name
├── TreeGaveUp           a tree that ended by itself before its work was done; says why
└── TreeNotStarted       a tree whose children did not get ready; says which and why
"""


class SupervisionError(Exception):
    """Root of the tree."""


class InvalidChildSpec(SupervisionError):
    """A child spec or flags field has a value that makes no sense."""


class NameTaken(SupervisionError):
    """Another supervisor's child has the name."""


class TreeGaveUp(SupervisionError):
    """The root supervisor ended by itself, and not because its work was done."""


class TreeNotStarted(SupervisionError):
    """The root supervisor ended, or its children were not ready in time."""
