"""Steering, watching and ending a run: its tree, its daemon, its control socket (docs/daemon.md)."""
