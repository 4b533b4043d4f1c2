"""Steering a run from outside: one socket in its directory, served by its main process (docs/daemon.md)."""
