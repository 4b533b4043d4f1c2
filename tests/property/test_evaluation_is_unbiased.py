"""Which copy of an evaluation episode counts never depends on how it ended or how long it took.

The curator's leases (`dart.curation.episode_leases`) are driven by environments whose episodes take any time
that may depend on the outcome, and that die at any moment.
"""

import heapq
import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.evaluation_bias import measure
from dart.config.config import Config
from dart.config.sections import EvaluationSettings, TasksSettings
from dart.core.records import Evaluation, EvaluationPhase
from dart.curation.evaluation import EvaluationLease, EvaluationSchedule
from dart.curation.run_phases import EvaluationEpisode, RunPlan

LEASE_S = 1000.0
ASKS_AGAIN_S = 7.0


@dataclass
class Simulation:
    """Environments that ask, play and die, over the curator's own leases."""

    environments: int
    episodes: int
    outcomes: list[tuple[bool, float]]
    """Outcome and duration of the first, second, … episode that is played, repeated without end."""
    deaths: dict[int, float] = field(default_factory=dict)
    """For each play (by number) in which the environment dies: after what share of the episode."""

    incarnations: dict[str, int] = field(default_factory=dict)
    plays: list[tuple[EvaluationLease, bool]] = field(default_factory=list)
    """Every play with its outcome."""
    recorded: dict[EvaluationEpisode, bool] = field(default_factory=dict)
    living: dict[EvaluationEpisode, set[str]] = field(default_factory=dict)
    """By which environments that live an episode is played now."""

    def __post_init__(self) -> None:
        plan = RunPlan(
            config=Config(
                tasks=TasksSettings(train=("t",)),
                evaluation=EvaluationSettings(seeds_per_task=self.episodes, greedy_seeds_per_task=0),
            ),
            training_ends_s=math.inf,
        )
        self.schedule = EvaluationSchedule(
            plan,
            self,  # type: ignore[arg-type]  # the part of a reader that is needed
            lambda task_id, data: None,
            lease_s=LEASE_S,
            max_attempts=10**9,
            incarnation=3,
        )

    def latest_version(self) -> None:
        """The record has no version."""

    def evaluations(self, phase: EvaluationPhase) -> list[Evaluation]:
        return [result_of(episode, is_success) for episode, is_success in self.recorded.items()]

    def run(self) -> None:
        events = [(0.0, number, f"env-{number}", "") for number in range(self.environments)]
        self.incarnations = {name: 1 for _, _, name, _ in events}
        number = len(events)
        while len(self.recorded) < self.episodes:
            now_s, _, name, what = heapq.heappop(events)
            number += 1
            next_s, then = self.happens(now_s, name, what)
            heapq.heappush(events, (next_s, number, name, then))

    def happens(self, now_s: float, name: str, what: str) -> tuple[float, str]:
        """One environment ends an episode, dies or asks; when it is heard of next, and with what."""
        if what.startswith("death"):
            self.living[self._of(what)[0].episode].discard(name)
            self.incarnations[name] += 1
            return now_s + ASKS_AGAIN_S, ""
        if what.startswith("end"):
            lease, is_success = self._of(what)
            self.living[lease.episode].discard(name)
            if self.schedule.holder(lease.fence) is not None:
                assert lease.episode not in self.recorded
                self.recorded[lease.episode] = is_success
                self.schedule.recorded(lease, result_of(lease.episode, is_success))
        return self.asks(now_s, name)

    def asks(self, now_s: float, name: str) -> tuple[float, str]:
        self.schedule.give_up_overdue(now_s, lambda _: 0.0)
        lease = self.schedule.lease(EvaluationPhase.BEFORE, name, self.incarnations.get, now_s)
        if lease is None:
            return now_s + ASKS_AGAIN_S, ""
        players = self.living.setdefault(lease.episode, set())
        assert not players, "two environments that live play the same episode"
        players.add(name)
        play = len(self.plays)
        is_success, duration_s = self.outcomes[play % len(self.outcomes)]
        self.plays.append((lease, is_success))
        if play in self.deaths:
            return now_s + self.deaths[play] * duration_s, f"death {play}"
        return now_s + duration_s, f"end {play}"

    def _of(self, what: str) -> tuple[EvaluationLease, bool]:
        return self.plays[int(what.split()[1])]


def result_of(episode: EvaluationEpisode, is_success: bool) -> Evaluation:
    return Evaluation(
        phase=EvaluationPhase.BEFORE,
        policy_version=0,
        task_id=episode.task_id,
        seed=episode.seed,
        reward=float(is_success),
    )


sizes = st.integers(1, 12)
durations = st.floats(0.1, LEASE_S - ASKS_AGAIN_S)
outcomes = st.lists(st.tuples(st.booleans(), durations), min_size=1, max_size=40)


@given(sizes, sizes, outcomes)
def test_each_episode_is_played_once_and_its_outcome_counts_whatever_its_duration(
    environments: int, episodes: int, drawn: list[tuple[bool, float]]
) -> None:
    simulation = Simulation(environments, episodes, drawn)
    simulation.run()
    assert len(simulation.plays) == episodes
    assert simulation.recorded == {lease.episode: outcome for lease, outcome in simulation.plays}


@given(sizes, sizes, outcomes, st.dictionaries(st.integers(0, 30), st.floats(0.0, 1.0), max_size=12))
def test_when_environments_die_the_last_play_of_an_episode_counts_and_no_two_live_at_once(
    environments: int, episodes: int, drawn: list[tuple[bool, float]], deaths: dict[int, float]
) -> None:
    simulation = Simulation(environments, episodes, drawn, deaths)
    simulation.run()
    last = {lease.episode: outcome for lease, outcome in simulation.plays}
    assert simulation.recorded == last
    died = sum(number < len(simulation.plays) for number in deaths)
    assert len(simulation.plays) == episodes + died


@pytest.mark.slow
def test_more_environments_than_episodes_measure_the_true_rate_although_failures_take_longer() -> None:
    """With the curator and the store themselves; benchmarks/evaluation_bias.py has larger samples."""
    assert measure(60, 15, 4).is_unbiased
