"""Figures of every update for TensorBoard and Weights & Biases, read from the record beside a run."""
