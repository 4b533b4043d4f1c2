"""Alignment: explores a site, aligns a grounding policy to it, and trains that policy on the site's tasks.

The idea of aligning a grounding model to an environment is from GUI-Bee (arXiv 2501.13896). `loop` runs the
stages; `model_work` has the work that needs torch, for a process of its own; `stages`, `mixing` and `report`
are pure.
"""
