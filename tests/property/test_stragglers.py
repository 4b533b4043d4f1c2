"""Episodes of very different lengths, in simulated time: slow groups are waited for, never too old.

The other state machine tries every order of events; this one makes long overtaking likely.
"""

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dart.core.messages import NoWorkYet
from dart.core.types import RolloutLease
from dart.curation.quota import fixed_quota
from dart.curation.service import CurationService, open_service
from dart.curation.settings import CuratorSettings
from dart.store.store import Store
from dart.testing.local_record import LocalRecord, at_once
from dart.testing.trajectories import trajectory_for
from tests.examples import examples

TICKS = 150
ENVIRONMENTS = 6
ENGINE_LAG_TICKS = 2
SLOW_TICKS = 25
"""A slow episode outlasts many updates; a fast one takes 1 or 2 ticks."""


class Simulation:
    """Environments that need time, a trainer that needs one tick, an engine that lags behind it."""

    def __init__(self, store: Store, service: CurationService, chance: Random) -> None:
        self.store, self.service, self.chance = store, service, chance
        self.played: dict[str, tuple[RolloutLease, int, int]] = {}
        self.version, self.committed_at = 0, {0: -ENGINE_LAG_TICKS}
        self.waits = 0

    def tick(self, now: int) -> None:
        serving = max(v for v, since in self.committed_at.items() if since + ENGINE_LAG_TICKS <= now)
        self.service.serving(serving)
        for number in range(ENVIRONMENTS):
            self.play(f"env-{number:03d}", now, serving)
        self.train(now)

    def play(self, environment: str, now: int, serving: int) -> None:
        if environment not in self.played:
            answer = at_once(self.service.work(environment))
            if isinstance(answer, NoWorkYet):
                return
            ticks = SLOW_TICKS if self.chance.random() < 0.1 else self.chance.randint(1, 2)
            self.played[environment] = (answer, now + ticks, serving)
        lease, until, version = self.played[environment]
        if until <= now:
            del self.played[environment]
            reward = float(self.chance.random() < 0.5)
            trajectory = trajectory_for(lease, reward, [version, serving], environment)
            self.store.finish_rollout(lease.rollout_id, lease.fence, trajectory)
            at_once(self.service.look(lease.rollout_id))

    def train(self, now: int) -> None:
        batch = at_once(self.service.batch())
        if isinstance(batch, NoWorkYet):
            self.waits += "must be in the next batch" in batch.reason
            return
        self.version += 1
        self.store.commit_update(batch.batch_id, batch.fence, self.version, {})
        self.committed_at[self.version] = now
        at_once(self.service.committed(self.version))


def simulate(folder: Path, bound: int, groups_per_update: int, seed: int) -> Simulation:
    rules = CuratorSettings(
        tasks=("click-test", "login-user"),
        seeds=range(50),
        quota=fixed_quota(2),
        largest_step_cap=5,
        groups_per_update=groups_per_update,
        staleness_bound=bound,
        max_attempts=3,
        lease_s=1000.0,
    )
    with Store(folder / "store.db") as store:
        store.add_version()
        simulation = Simulation(store, at_once(open_service(rules, LocalRecord(store))), Random(seed))
        for now in range(TICKS):
            simulation.tick(now)
        assert "stale" not in store.totals().drops
        assert store.integrity(bound) == ()
    return simulation


@given(bound=st.integers(0, 3), groups_per_update=st.integers(1, 3), seed=st.integers(0, 2**16))
@settings(max_examples=examples(8), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_no_step_becomes_stale_however_slow_an_episode_is(
    bound: int, groups_per_update: int, seed: int
) -> None:
    with TemporaryDirectory() as folder:
        simulation = simulate(Path(folder), bound, groups_per_update, seed)
    assert simulation.version > 0


@pytest.mark.parametrize("seed", [1, 2])
def test_the_simulation_does_contain_overtaking_that_has_to_be_stopped(tmp_path: Path, seed: int) -> None:
    assert simulate(tmp_path, bound=1, groups_per_update=1, seed=seed).waits > 0
