"""Models of the slow parts, which wait as long as the real ones would: for measurements of all the rest.

Environments (`environment`), engines (`engine`) and learners (`learner`), chosen by `environments.kind`,
`rollout.engine` and `training.learner`. Nothing here imports a heavy library.
"""
