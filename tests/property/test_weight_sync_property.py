"""Any order of publishes, loads, failures, deaths and starts keeps the promises of `weight_sync_plan`."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dart.inference.weight_sync_plan import BACKOFF, LoadDecision, ServeDecision, SyncPlan
from tests.examples import examples

WORKERS = [f"rollout-{number}" for number in range(5)]


class Pool(RuleBasedStateMachine):
    """A pool of engines that do what they are told, fail or die, and the sync that tells them."""

    all_at_once = False
    share = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.sync = SyncPlan(all_at_once=self.all_at_once, share=self.share)
        self.now_s = 0.0
        self.newest = -1
        self.serves: dict[str, int] = {}
        """By worker that runs."""
        self.told: dict[str, LoadDecision] = {}
        """What a worker is loading."""
        self.lost: list[LoadDecision] = []
        """Of workers that died in the middle of them."""
        self.holding: set[str] = set()
        self.publish()

    # ---- what may happen, in any order ----

    @rule()
    def publish(self) -> None:
        self.newest += 1
        self.sync.published(self.newest)
        self.carry_out()

    @rule(worker=st.sampled_from(WORKERS), behind=st.integers(0, 2))
    def start(self, worker: str, behind: int) -> None:
        """A worker starts at the newest version, or a little late for it."""
        if worker in self.serves:
            return
        self.serves[worker] = max(0, self.newest - behind)
        self.sync.up(worker, self.serves[worker])
        self.carry_out()

    @rule(worker=st.sampled_from(WORKERS))
    def look(self, worker: str) -> None:
        """The board is read again: no news."""
        if worker in self.serves:
            self.sync.up(worker, self.serves[worker])
            self.carry_out()

    @precondition(lambda self: self.told)
    @rule(data=st.data())
    def load(self, data: st.DataObject) -> None:
        self.finish(data.draw(st.sampled_from(sorted(self.told))))

    @precondition(lambda self: self.told)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.told)))
        load = self.told.pop(worker)
        self.holding.discard(worker)
        self.sync.failed(load, self.now_s)
        self.carry_out()

    @precondition(lambda self: self.lost)
    @rule(data=st.data())
    def fail_late(self, data: st.DataObject) -> None:
        """The load of one that died fails when another one of that name may run and load."""
        self.sync.failed(data.draw(st.sampled_from(self.lost)), self.now_s)
        self.carry_out()

    @rule(worker=st.sampled_from(WORKERS))
    def die(self, worker: str) -> None:
        self.serves.pop(worker, None)
        if (load := self.told.pop(worker, None)) is not None:
            self.lost.append(load)
        self.holding.discard(worker)
        self.sync.down(worker)
        self.carry_out()

    @rule(worker=st.sampled_from(WORKERS))
    def load_that_nobody_waited_for(self, worker: str) -> None:
        """It was taken for dead in the middle of a load, came back, and now the load is done."""
        if worker in self.serves and worker not in self.told:
            self.serves[worker] = self.newest
            if self.all_at_once:
                self.holding.add(worker)
            self.sync.loaded(worker, self.newest)
            self.carry_out()

    @rule(seconds=st.floats(0.0, 5.0))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.carry_out()

    # ---- carrying out ----

    def finish(self, worker: str) -> None:
        load = self.told.pop(worker)
        self.serves[worker] = max(self.serves[worker], load.version)
        self.sync.loaded(worker, self.serves[worker])
        self.carry_out()

    def carry_out(self) -> None:
        before = self.sync.required
        actions = self.sync.next_actions(self.now_s)
        if actions and not self.share:
            assert not self.told, "a sync began before the last one ended"
        for action in actions:
            if isinstance(action, ServeDecision):
                self.holding.discard(action.engine)
                continue
            assert action.engine in self.serves, "told to load, but it does not run"
            assert self.serves[action.engine] < action.version == self.newest
            assert action.engine not in self.told
            self.told[action.engine] = action
            if action.hold:
                self.holding.add(action.engine)
        assert self.sync.required >= before

    # ---- what must hold ----

    @invariant()
    def one_at_a_time_has_one_worker_out_or_its_share(self) -> None:
        if not self.all_at_once:
            # Workers may die while others load: those who began were the share of who was there then.
            assert len(self.told) <= max(1, int(self.share * len(WORKERS)))
            assert not self.holding

    @invariant()
    def whoever_holds_waits_for_somebody_who_is_loading(self) -> None:
        assert not self.holding or self.told

    @invariant()
    def what_is_required_was_published(self) -> None:
        assert self.sync.required <= self.newest

    @invariant()
    def it_knows_who_is_loading(self) -> None:
        for worker in WORKERS:
            load = self.told.get(worker)
            known = self.sync.updating(worker)
            assert known == load.version if load is not None else known is None or worker in self.holding

    def teardown(self) -> None:
        """Left alone, everybody who runs comes to the newest version and serves it."""
        for _ in range(4 * len(WORKERS)):
            self.now_s += BACKOFF.max_s
            self.carry_out()
            for worker in sorted(self.told):
                self.finish(worker)
        assert set(self.serves.values()) <= {self.newest}
        assert not self.told
        assert not self.holding
        assert self.sync.next_actions(self.now_s) == []
        if self.serves:
            assert self.sync.required == self.newest == self.sync.oldest_served


class CoupledPool(Pool):
    all_at_once = True


class LargePool(Pool):
    """Two of five at a time."""

    share = 0.4


TestOneAtATime = Pool.TestCase
TestOneAtATime.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
TestAShareAtATime = LargePool.TestCase
TestAShareAtATime.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
TestAllAtOnce = CoupledPool.TestCase
TestAllAtOnce.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)


def versions_required(sync: SyncPlan, starts: list[int], failing: set[int]) -> Iterator[int]:
    """What is required after every event of one roll through the pool; who fails, fails for good."""
    for number, version in enumerate(starts):
        sync.up(f"w{number}", version)
    for _ in starts:
        for action in sync.next_actions(0.0):
            assert isinstance(action, LoadDecision)
            if int(action.engine[1:]) in failing:
                sync.failed(action, 0.0)
            else:
                sync.loaded(action.engine, action.version)
            yield sync.required


@given(st.integers(1, 8), st.data())
def test_a_version_is_required_only_once_everybody_who_can_serves_it(count: int, data: st.DataObject) -> None:
    failing = set(data.draw(st.lists(st.integers(0, count - 1), unique=True)))
    required = list(versions_required(SyncPlan(version=1), [0] * count, failing))
    assert required[:-1] == [0] * (count - 1)
    assert required[-1] == (0 if len(failing) == count else 1)


def test_of_many_workers_a_share_loads_at_a_time() -> None:
    sync = SyncPlan(share=0.125)
    for number in range(32):
        sync.up(f"w{number}", 0)
    sync.published(1)

    first = sync.next_actions(0.0)
    assert len(first) == 4
    assert sync.next_actions(0.0) == []
    sync.loaded(first[0].engine, 1)
    assert len(sync.next_actions(0.0)) == 1


@pytest.mark.parametrize("version", [0, 1])
def test_a_version_that_is_not_newer_changes_nothing(version: int) -> None:
    sync = SyncPlan(version=0)
    sync.up("a", 0)
    sync.published(1)
    (load,) = sync.next_actions(0.0)
    assert isinstance(load, LoadDecision)
    sync.failed(load, 0.0)
    sync.published(version)
    assert sync.target == 1
    assert sync.next_actions(0.0) == [], "the engine waits before it loads again"


def test_the_late_failure_of_a_load_is_not_taken_for_that_of_the_worker_that_replaced_it() -> None:
    """It would rest, and a second worker would be out beside the one that is loading."""
    sync = SyncPlan(version=0)
    sync.up("a", 0)
    sync.published(1)
    (of_the_dead,) = sync.next_actions(0.0)
    assert isinstance(of_the_dead, LoadDecision)
    sync.down("a")
    sync.up("a", 0)
    assert [action.engine for action in sync.next_actions(0.1)] == ["a"]
    sync.up("b", 0)
    sync.failed(of_the_dead, 0.2)
    assert sync.updating("a") == 1
    assert sync.next_actions(0.3) == []


def test_the_late_failure_of_a_load_says_nothing_of_a_worker_that_serves_the_newest_version() -> None:
    sync = SyncPlan(version=0)
    sync.up("a", 0)
    sync.published(1)
    (load,) = sync.next_actions(0.0)
    assert isinstance(load, LoadDecision)
    sync.down("a")
    sync.up("a", 1)
    sync.failed(load, 0.1)
    assert sync.oldest_served == sync.required == 1
