"""The gauges of dartrl: whole numbers that an actor keeps up to date in its row of the board."""

from enum import IntEnum


class Gauge(IntEnum):
    """A gauge, by its index in a row of the board (`actors.board.GAUGES`).

    A row has only four gauges, so the same index means different things for different kinds of actors.
    """

    SERVED_VERSION = 0
    """For a rollout actor: the policy version that it answers with."""
    ENGINES = 0  # weight_sync serves nothing
    """For weight_sync: the number of engines that the run has now; 0 while it is not known yet."""
    TRAINED_VERSION = 1
    """For the trainer: the newest policy version that it has committed."""
    LOADING_VERSION = 1  # the trainer loads nothing, and a rollout actor trains nothing
    """For a rollout actor: the oldest policy version that it is loading; 0 if it loads none."""
    REQUIRED_VERSION = 2
    """For weight_sync: the oldest policy version that engines may still serve."""
    WAITED_UNIX_S = 2  # weight_sync stores nothing
    """For any other actor: the Unix time at which a full disk or the object storage last made it wait; 0 if
    it never waited. While the record itself refuses writes, the store is not ready instead."""
    IN_FLIGHT = 3
    """For a rollout actor: the number of requests that wait or are being answered."""
