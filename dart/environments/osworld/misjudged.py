"""Published tasks that OSWorld's evaluators judge plainly wrongly. Training leaves these tasks out.

Evaluations keep them, with the published judgement, so that a score of all tasks can be compared with
published scores. A policy that trained on one of these tasks would learn what its evaluator rewards, and not
the task. Each reason can be checked in the source of the evaluators (desktop-env 1.0.2).
"""

from collections.abc import Mapping

from dart.config.config import Config

SAME_FILE = "compares each file with itself: results and expected files have the same names in the cache"
ALWAYS_ONE = "`check_thunderbird_folder` drops every message that is not empty: any two folders are equal"
SECOND_COLOUR = (
    "`check_triangle_position` takes the second rarest colour, which in a picture of two colours is the "
    "background, whose centre is always near the middle"
)
PAYS_ITSELF = (
    "its evaluation runs code of the policy in the evaluator's process, so a policy can set its own score"
)

MISJUDGED: Mapping[str, str] = {
    "osworld/gimp/f4aec372-4fb0-4df5-a52b-79e0e2a5d6ce": SECOND_COLOUR,
    "osworld/multi_apps/26150609-0da3-4a7d-8868-0faf9c5f01bb": PAYS_ITSELF,
    "osworld/multi_apps/74d5859f-ed66-4d3e-aa0e-93d7a592ce41": SAME_FILE,
    "osworld/multi_apps/78aed49a-a710-4321-a793-b611a7c5b56b": ALWAYS_ONE,
    "osworld/multi_apps/9219480b-3aed-47fc-8bac-d2cffc5849f7": PAYS_ITSELF,
    "osworld/multi_apps/a0b9dc9c-fc07-4a88-8c5d-5e3ecad91bcb": ALWAYS_ONE,
    "osworld/os/ec4e3f68-9ea4-4c18-a5c9-69f89d1178b3": PAYS_ITSELF,
}
"""The tasks, each with its reason."""


def left_out(config: Config) -> Mapping[str, str]:
    """Return the tasks that training leaves out, with their reasons."""
    return MISJUDGED
