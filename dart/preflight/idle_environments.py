"""Whether a run has more environments than rollouts may be open while an update is computed."""

from collections.abc import Iterator

from dart.config.config import Config
from dart.curation.admission import groups_admissible


def idle_lines(config: Config) -> Iterator[str]:
    """Yield a line for a person if some environments can only wait for as long as an update takes.

    The groups of the batch that is trained are live, so the staleness bound leaves room for few others.
    """
    curation, training, count = config.curation, config.training, config.environments.count
    groups = groups_admissible(
        serving_version=0,
        trainer_version=0,
        live_groups=training.groups_per_update,
        groups_per_update=training.groups_per_update,
        staleness_bound=curation.staleness,
    )
    rollouts = groups * curation.rollouts_per_group
    if training.learner != "none" and not config.exploration.enabled and count > rollouts:
        yield (
            f"{count - rollouts} of {count} environments only wait while an update is computed, because at "
            f"most {rollouts} rollouts are open then: curation.staleness ({curation.staleness}) x "
            f"training.groups_per_update ({training.groups_per_update}) x curation.rollouts_per_group "
            f"({curation.rollouts_per_group}); lower environments.count, or raise one of these"
        )
