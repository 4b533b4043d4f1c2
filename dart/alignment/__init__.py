"""The whole loop of a site: explore it, align a grounding policy to it, and train that policy on its tasks.

Aligning a grounding model to an environment is GUI-Bee's idea (arXiv 2501.13896). `stages`, `mixing` and
`report` are pure; `loop` runs the stages; `model_work` is what needs torch, in a process of its own.
"""
