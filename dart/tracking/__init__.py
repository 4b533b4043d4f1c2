"""Figures of every update for TensorBoard and Weights & Biases, followed in the record beside a run."""
