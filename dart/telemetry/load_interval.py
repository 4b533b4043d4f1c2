"""How often each actor records its load: all of them together write no more than the record can take."""

from dart.config.config import Config

LOAD_EVENTS_PER_S = 50.0
"""LOAD events of all actors of a run together."""


def load_every_s(config: Config) -> float:
    """Seconds between two LOAD events of an actor: `telemetry.load_every_s`, longer if actors are many."""
    actors = config.environments.count + config.rollout.count + 1  # the trainer
    return max(config.telemetry.load_every_s, actors / LOAD_EVENTS_PER_S)
