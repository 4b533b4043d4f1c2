"""Remarks about the demonstrations of the experience pool. Pure."""

from collections.abc import Sequence

from dart.config.config import Config
from dart.config.environment_kinds import KINDS
from dart.core.records import DemonstrationSummary


def about_pool(held: Sequence[DemonstrationSummary], config: Config) -> list[str]:
    """What hinders the use of demonstrations that are not dropped, a line each with the remedy."""
    pool, lines = config.curation.experience_pool, []
    if idle := sum(one.task_id not in config.tasks.train for one in held):
        lines.append(f"{idle} of them are of tasks this run does not train")
    if lacking := sum(one.lacks_thought for one in held):
        lines.append(f"{lacking} of them have no thought: {_without_thought(config)}")
    if held and KINDS[config.environments.kind].content_follows_from_seed:
        lines.append(
            "each joins groups of its own seed only, because the seed determines the screens of these tasks; "
            "a task that fails is played on the seeds of its demonstrations"
        )
    if not pool.enabled:
        lines.append("the run does not use its pool: set curation.experience_pool.enabled when you resume it")
    return lines


def _without_thought(config: Config) -> str:
    pool = config.curation.experience_pool
    if pool.without_thought:
        return (
            "curation.experience_pool.without_thought is set, so the policy learns to leave its thoughts out"
        )
    plays = "the policy plays with their actions as hints and writes its own thoughts"
    if pool.self_rolled:
        return f"they are not trained on; {plays}"
    return f"they are not trained on; set curation.experience_pool.self_rolled, and {plays}"


def remarks(one: DemonstrationSummary) -> str:
    """What is special about a demonstration, for a list."""
    found = [
        f"self-rolled with hints of {one.guide_id}" if one.is_self_rolled else "",
        f"guided {one.rolls} times" if one.rolls else "",
        "no thought" if one.lacks_thought else "",
        "dropped" if one.dropped else "",
    ]
    return ", ".join(remark for remark in found if remark)
