"""The rules of the learning alarms: when each is raised and cleared, and what to do then.

An alarm measures each update, or each window of finished episodes (`dart.curation.play_figures`). It is
raised after `raise_after` bad measurements in a row and cleared after `clear_after` good ones (hysteresis). A
measurement between the two levels is neither bad nor good, so a value that moves about its threshold changes
nothing.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from dart.config.alarm_names import LearningAlarm
from dart.config.sections import AlarmsSettings


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement for an alarm."""

    value: float
    text: str
    """The measurement in words and with its unit, for people to read."""


Figures = Mapping[LearningAlarm, Measured]
"""The measurements of one update or one window, by alarm. An alarm without an entry was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRule:
    """When an alarm is raised and cleared."""

    alarm: LearningAlarm
    threshold: Callable[[AlarmsSettings], float]
    """Returns the threshold from the settings. A value at the threshold, or beyond it, is bad."""
    is_low_bad: bool = False
    """Whether values below the threshold are bad instead of those above it."""
    clear_at: float
    """Factor: a value is good if it is on the harmless side of `clear_at` times the threshold.

    See `is_ratio` for the limit of this."""
    is_ratio: bool = False
    """Whether 1 is the value of a healthy run, as at its start; for the other alarms it is 0. For a threshold
    near 1, the level at which the alarm is cleared is the geometric mean of the threshold and 1, because
    `clear_at` times the threshold would be beyond what a healthy run reaches."""
    raise_after: int
    """Number of bad measurements in a row that raise the alarm."""
    clear_after: int = 3
    """Number of good measurements in a row that clear the alarm."""
    remedy: str

    def is_bad(self, value: float, settings: AlarmsSettings) -> bool:
        """Whether the value is at the threshold or beyond it, on the bad side."""
        limit = self.threshold(settings)
        return value <= limit if self.is_low_bad else value >= limit

    def is_good(self, value: float, settings: AlarmsSettings) -> bool:
        """Whether the value is far enough on the harmless side to count towards clearing the alarm."""
        limit = self.clear_level(settings)
        return value > limit if self.is_low_bad else value < limit

    def clear_level(self, settings: AlarmsSettings) -> float:
        """Return the value beyond which, on the harmless side, values are good."""
        threshold = self.threshold(settings)
        level = self.clear_at * threshold
        if not self.is_ratio:
            return level
        halfway = math.sqrt(threshold)
        return min(level, halfway) if self.is_low_bad else max(level, halfway)


RULES: tuple[AlarmRule, ...] = (
    AlarmRule(
        alarm=LearningAlarm.ENTROPY_COLLAPSE,
        threshold=lambda alarms: alarms.entropy_share,
        is_low_bad=True,
        clear_at=2.0,
        is_ratio=True,
        raise_after=3,
        remedy="Answers hardly vary, so groups have no spread to learn from: continue with a lower "
        "training.lr, a higher training.kl_beta or training.clip_high",
    ),
    AlarmRule(
        alarm=LearningAlarm.KL_RUNAWAY,
        threshold=lambda alarms: alarms.kl_nats,
        clear_at=0.75,
        raise_after=2,
        remedy="The policy leaves the base policy behind: continue with a lower training.lr or a higher "
        "training.kl_beta",
    ),
    AlarmRule(
        alarm=LearningAlarm.SUCCESS_FALLS,
        threshold=lambda alarms: alarms.success_fall,
        clear_at=0.6,
        raise_after=3,
        remedy="Look at failed episodes of the page first; if the policy got worse, continue with a lower "
        "training.lr or more training.groups_per_update",
    ),
    AlarmRule(
        alarm=LearningAlarm.LOGPROB_MISMATCH,
        threshold=lambda alarms: alarms.mismatch_nats,
        clear_at=0.5,
        raise_after=2,
        remedy="Engine and trainer disagree about one version: compare the precision of the engine "
        "(rollout.vllm.dtype) with that of the trainer, and see by `dartrl status` which version engines "
        "serve; keep curation.importance.enabled = true",
    ),
    AlarmRule(
        alarm=LearningAlarm.EQUAL_REWARDS,
        threshold=lambda alarms: alarms.equal_share,
        clear_at=0.95,
        raise_after=3,
        remedy="Groups of equal rewards teach nothing (with GiGPO, how to succeed in fewer steps): check the "
        "evaluator on an episode of the page; if it is right, train on tasks that are harder (all succeed) "
        "or easier (all fail), or set curation.experience_pool.enabled = true",
    ),
    AlarmRule(
        alarm=LearningAlarm.ONE_ACTION,
        threshold=lambda alarms: alarms.action_share,
        clear_at=0.7,
        raise_after=2,
        remedy="Look at episodes of the page: are the screenshots of different screens? If they are, the "
        "policy has collapsed: start again from an earlier checkpoint with a lower training.lr",
    ),
    AlarmRule(
        alarm=LearningAlarm.LENGTH_EXPLODES,
        threshold=lambda alarms: alarms.length_factor,
        clear_at=0.8,
        is_ratio=True,
        raise_after=2,
        remedy="Look at the longest episodes of the page: does the policy repeat itself, or does no action "
        "take effect? Continue with a lower training.lr, or bound episodes by a lower curation.step_cap",
    ),
    AlarmRule(
        alarm=LearningAlarm.GRADIENTS_CLIPPED,
        threshold=lambda alarms: alarms.gradient_factor,
        clear_at=0.5,
        is_ratio=True,
        raise_after=3,
        remedy="The size of each step is that of the clip: continue with a higher training.max_grad_norm "
        "and a lower training.lr",
    ),
    AlarmRule(
        alarm=LearningAlarm.TASK_UNLEARNED,
        threshold=lambda alarms: alarms.task_fall,
        clear_at=0.7,
        raise_after=2,
        remedy="Look at episodes of the task on the page; if the policy forgot it, continue with more "
        "training.groups_per_update, so that no update is without the task, or a lower training.lr",
    ),
    AlarmRule(
        alarm=LearningAlarm.EVALUATOR_STUCK,
        threshold=lambda alarms: alarms.stuck_chance,
        is_low_bad=True,
        clear_at=1e3,
        is_ratio=True,
        raise_after=1,
        clear_after=2,
        remedy="Compare the rewards of the newest episodes with their last screenshots on the page, and "
        "repair the evaluator; `dartrl pause` keeps the run from learning from it meanwhile",
    ),
)
"""The rule of each alarm. docs/alarms.md shows the rules as a table; a test compares the two."""

MEMORY = max(max(rule.raise_after, rule.clear_after) for rule in RULES)
"""Number of newest measurements that determine the counts of bad and good measurements of every rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmChange:
    """The fact that an alarm was raised or cleared, and the measurement that did it."""

    rule: AlarmRule
    is_raised: bool
    measured: Measured
    threshold: float


class AlarmBoard:
    """Keeps which alarms are raised. Call `next` with the measurements, in their order."""

    def __init__(self, settings: AlarmsSettings, raised: Collection[LearningAlarm] = ()) -> None:
        """raised   the alarms that an earlier curator raised and did not clear"""
        self._settings = settings
        self._rules = tuple(rule for rule in RULES if settings.enabled and rule.alarm not in settings.off)
        self._raised = set(raised)
        self._bad: dict[LearningAlarm, int] = {}
        self._good: dict[LearningAlarm, int] = {}

    @property
    def raised(self) -> frozenset[LearningAlarm]:
        """The alarms that are raised now."""
        return frozenset(self._raised)

    def clear_unwatched(self) -> list[AlarmChange]:
        """Clear the alarms that are no longer measured by the configuration of now."""
        unwatched = [rule for rule in RULES if rule.alarm in self._raised and rule not in self._rules]
        self._raised -= {rule.alarm for rule in unwatched}
        return [self._change(rule, Measured(0.0, "it is not measured any more")) for rule in unwatched]

    def next(self, figures: Figures) -> list[AlarmChange]:
        """Return the alarms that these measurements raise or clear."""
        return list(self._changes(figures))

    def _changes(self, figures: Figures) -> Iterator[AlarmChange]:
        for rule in self._rules:
            measured = figures.get(rule.alarm)
            if measured is None:
                continue
            alarm = rule.alarm
            is_bad = rule.is_bad(measured.value, self._settings)
            is_good = rule.is_good(measured.value, self._settings)
            self._bad[alarm] = self._bad.get(alarm, 0) + 1 if is_bad else 0
            self._good[alarm] = self._good.get(alarm, 0) + 1 if is_good else 0
            is_raised = alarm in self._raised
            if is_raised and self._good[alarm] >= rule.clear_after:
                self._raised.remove(alarm)
            elif not is_raised and self._bad[alarm] >= rule.raise_after:
                self._raised.add(alarm)
            else:
                continue
            yield self._change(rule, measured)

    def _change(self, rule: AlarmRule, measured: Measured) -> AlarmChange:
        return AlarmChange(
            rule=rule,
            is_raised=rule.alarm in self._raised,
            measured=measured,
            threshold=rule.threshold(self._settings),
        )


def lasting_changes(changes: Iterable[AlarmChange], raised: Collection[LearningAlarm]) -> list[AlarmChange]:
    """Return the last change of each alarm, except of alarms that it leaves as they were.

    raised   the alarms that were raised before the changes
    """
    last = {change.rule.alarm: change for change in changes}
    return [change for alarm, change in last.items() if change.is_raised != (alarm in raised)]


def update_figures(metrics: Mapping[str, float], max_grad_norm: float) -> Figures:
    """Return the measurements of one update for the alarms.

    metrics         the metrics that the trainer recorded with the version; an alarm whose metric is missing
                    is not measured
    max_grad_norm   the value of `training.max_grad_norm`
    """
    figures = {}
    if (kl := metrics.get("kl")) is not None:
        figures[LearningAlarm.KL_RUNAWAY] = Measured(
            kl, f"KL divergence to the base policy {kl:.3g} nats per token"
        )
    if (nats := metrics.get("mismatch_engine")) is not None:
        text = f"log-probs of engine and trainer differ by {nats:.3g} nats per token"
        figures[LearningAlarm.LOGPROB_MISMATCH] = Measured(nats, text)
    if (norm := metrics.get("grad_norm")) is not None:
        text = f"gradient norm {norm:.3g}, clipped to {max_grad_norm:g}"
        figures[LearningAlarm.GRADIENTS_CLIPPED] = Measured(norm / max_grad_norm, text)
    return figures
