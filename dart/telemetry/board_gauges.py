"""The gauges of the training system: whole numbers that an actor keeps up to date on the vitals board."""

from enum import IntEnum


class Gauge(IntEnum):
    """A gauge, by its index in a row of the board (`actors.board.GAUGES`).

    A row has four, so an index may mean one thing of one kind of actor and another of another.
    """

    SERVED_VERSION = 0
    """Of a rollout actor: the policy version that it answers with."""
    ENGINES = 0  # weight_sync serves nothing
    """Of weight_sync: how many engines the run has now; 0 before it is known."""
    TRAINED_VERSION = 1
    """Of the trainer: the newest policy version that it has committed."""
    LOADING_VERSION = 1  # the trainer loads nothing, and a rollout actor trains nothing
    """Of a rollout actor: the oldest policy version that it is loading; 0 if it loads none."""
    REQUIRED_VERSION = 2
    """Of weight_sync: the oldest policy version that may still be served."""
    IN_FLIGHT = 3
    """Of a rollout actor: the requests that wait or are being answered."""
