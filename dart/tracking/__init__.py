"""Writes figures of every update to TensorBoard and Weights & Biases, from the record of a run.

A sidecar does this, so the run does not wait for it.
"""
