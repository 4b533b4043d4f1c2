"""How old the last beat of an actor may be before others stop counting on it."""

ACTOR_SILENT_S = 20.0
"""Actors beat every 15 s at least; one whose last beat is older says nothing any more."""

ENGINE_SILENT_S = 2.0
"""A rollout actor beats four times a second; one that is silent for longer is stopped or starved of the
processor."""
