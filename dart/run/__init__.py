"""Start, steer, watch and end a run: its tree, its daemon, its control socket (docs/daemon.md)."""
