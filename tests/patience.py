"""Deadlines that scale with the machine: what takes a second on a free one takes ten where ten others run."""

import os


def slowness() -> float:
    """How many times longer than on a free machine things may take now: who wants each processor."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
