"""The interval at which each actor records its load. It is long enough that all actors together do not write
more than the record can take."""

from dart.config.config import Config

LOAD_EVENTS_PER_S = 50.0
"""Largest number of LOAD events per second of all actors of a run together."""


def load_every_s(config: Config) -> float:
    """Return the seconds between two LOAD events of an actor: `telemetry.load_every_s`, or more if the run
    has many actors."""
    actors = config.environments.count + config.rollout.count + 1  # the trainer
    return max(config.telemetry.load_every_s, actors / LOAD_EVENTS_PER_S)
