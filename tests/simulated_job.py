"""A job of real processes, messages and record, whose environments, engine and learner only wait."""

SIMULATED_JOB = """
tasks.train = ["simulated/a", "simulated/b"]
environments.count = 2
environments.kind = "simulated"
rollout.engine = "simulated"
training.learner = "simulated"
training.groups_per_update = 1
curation.rollouts_per_group = 2
simulation.steps_median = 2
simulation.generate_base_s = 0.02
simulation.load_s = 0.1
evaluation.before = false
evaluation.after = false
"""
"""The text of its configuration file. Add lines with other keys; a table in brackets cannot be added."""
