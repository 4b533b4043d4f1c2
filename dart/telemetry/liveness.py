"""Ages of the last heartbeat after which an actor counts as silent."""

ACTOR_SILENT_S = 20.0
"""Age of the last heartbeat after which an actor counts as silent. Beats are at most 15 s apart."""

ENGINE_SILENT_S = 2.0
"""The same age for rollout actors, which beat four times a second: a silent one is stopped or gets no
processor time."""
