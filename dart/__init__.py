"""The training system: environments, rollouts, curation, training, and the tree that supervises them."""

__version__ = "0.1.0"
