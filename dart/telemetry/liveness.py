"""Ages of the last heartbeat after which an actor counts as silent."""

ACTOR_SILENT_S = 20.0
"""Age of the last heartbeat after which an actor counts as silent. Beats are at most 15 s apart."""

ENGINE_SILENT_S = 2.0
"""Age of the last heartbeat after which a rollout actor counts as silent. It beats four times a second, so a
silent one is stopped or gets no processor time."""
