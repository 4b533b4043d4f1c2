"""Ages of the last heartbeat after which an actor counts as silent."""

ACTOR_SILENT_S = 20.0
"""Age for all actors, which send a heartbeat at least every 15 s."""

ENGINE_SILENT_S = 2.0
"""Age for rollout actors, which send four heartbeats a second; a silent one is stopped or gets no processor
time."""
