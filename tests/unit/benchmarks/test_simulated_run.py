"""The simulated run: clock, engines, and the real decisions in it, against cases worked out by hand."""

import pytest

from benchmarks import simulated_run
from benchmarks.simulated_run import EventClock, Routing, Share, SimulatedEngine, SimulatedRun, ideal, predict
from benchmarks.simulation import CONFIG, at_size, decade
from dart.config.config import Config, load_config
from tests.scratch_record import ScratchRecord

EXACT = (
    "environments.latency.reset_median_s=1.0",
    "environments.latency.reset_sigma=0.0",
    "environments.latency.step_median_s=2.0",
    "environments.latency.step_sigma=0.0",
    "environments.latency.scale=1.0",
    "environments.reset_deadline_s=60",
    "curation.lease_s=600",
    "simulation.steps_median=4.0",
    "simulation.steps_sigma=0.0",
    "simulation.generate_base_s=0.5",
    "simulation.generate_each_s=0.25",
    "simulation.load_s=3.0",
    "simulation.swap_s=0.5",
    "simulation.update_base_s=1.0",
    "simulation.update_each_s=0.0",
)
"""No chance anywhere but in rewards: an episode alone takes 1 + 4 * (0.75 + 2) = 12 s."""


def config(*overrides: str) -> Config:
    return load_config(CONFIG, [*EXACT, *overrides])


def test_events_happen_in_order_and_those_of_one_moment_as_they_were_asked_for() -> None:
    clock, seen = EventClock(), list[tuple[float, str]]()
    for delay_s, name in ((2.0, "late"), (1.0, "first"), (1.0, "second")):
        clock.after(delay_s, lambda name=name: seen.append((clock.now_s, name)))  # type: ignore[misc]
    clock.run(lambda: len(seen) == 2)
    assert seen == [(1.0, "first"), (1.0, "second")]
    clock.run(lambda: False)
    assert seen[-1] == (2.0, "late")


def test_a_share_weighs_seconds_by_their_level() -> None:
    clock = EventClock()
    share = Share(clock)
    for at_s, level in ((1.0, 2.0), (4.0, 0.5), (6.0, 0.0)):
        clock.after(at_s, lambda level=level: share.set(level))  # type: ignore[misc]
    clock.after(9.0, lambda: None)
    clock.run(lambda: False)
    assert share.total() == 2 * 3 + 0.5 * 2


def engine(clock: EventClock) -> SimulatedEngine:
    return SimulatedEngine("rollout-0", config("rollout.max_batch=2"), clock, lambda _: None)


def test_an_engine_answers_what_waits_in_batches_and_loads_between_two_of_them() -> None:
    clock, seen = EventClock(), list[tuple[float, int]]()
    one = engine(clock)
    for _ in range(4):
        one.ask(lambda version: seen.append((clock.now_s, version)))
    assert one.in_flight == 4
    one.load(1, lambda: seen.append((clock.now_s, -1)))
    for at_s in (3.5, 4.0):
        clock.after(at_s, lambda: one.ask(lambda version: seen.append((clock.now_s, version))))
    clock.run(lambda: False)
    # The first is alone in its batch (0.75 s), then two (1 s), then one (0.75 s), while the version is read
    # and proven (3.75 s). The swap waits for the batch of 3.5 s and takes 0.5 s, which are not busy.
    assert seen == [(0.75, 0), (1.75, 0), (1.75, 0), (2.5, 0), (4.25, 0), (4.75, -1), (5.5, 1)]
    assert one.busy.total() == 4.0
    assert one.weighted.total() == 0.75 / 2 + 1.0 + 3 * 0.75 / 2


def test_an_engine_that_holds_answers_when_it_may_serve() -> None:
    clock, seen = EventClock(), list[float]()
    one = engine(clock)
    one.is_held = True
    one.ask(lambda _: seen.append(clock.now_s))
    clock.after(10.0, one.serve)
    clock.run(lambda: False)
    assert seen == [10.75]


def test_requests_go_to_the_engine_with_the_fewest_that_is_not_out() -> None:
    clock = EventClock()
    engines = {
        name: SimulatedEngine(name, config(), clock, lambda _: None) for name in ("rollout-0", "rollout-1")
    }
    routing = Routing(list(engines))
    for one in engines.values():
        routing.put(one)
    engines["rollout-0"].ask(lambda _: None)
    routing.put(engines["rollout-0"])
    assert routing.least_busy() is engines["rollout-1"]
    routing.remove(engines["rollout-1"])
    assert routing.least_busy() is engines["rollout-0"]
    routing.remove(engines["rollout-0"])
    assert routing.least_busy().name in engines  # somebody has to be asked


def test_the_coupled_way_takes_exactly_rollouts_update_and_load() -> None:
    coupled = config(
        "environments.count=8",
        "rollout.count=1",
        "training.groups_per_update=1",
        "curation.scheduling=batch",
        "curation.staleness=0",
        "rollout.sync=all_at_once",
        "simulation.generate_each_s=0.0",
    )
    simulated = SimulatedRun(coupled)
    simulated.run(3)
    assert simulated.stored == 3 * 8, "every group had spread in its rewards"
    # After the reset one request is answered alone, the other seven together 0.5 s later, at 2 s; three times
    # they act for 2 s and are answered in 0.5 s, and act once more. The update is 1 s.
    first, *others = (mark.at_s for mark in simulated.marks[1:])
    assert first == pytest.approx(2.0 + 3 * 2.5 + 2.0 + 1.0)
    # The others begin when the version is read and proved, 3.5 s later, and taken over in 0.5 s.
    assert others == pytest.approx([2 * first + 4.0, 3 * first + 8.0])


def test_the_record_of_a_simulation_and_the_store_lead_to_the_same_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_its_own = SimulatedRun(load_config(CONFIG))
    with_its_own.run(6)
    monkeypatch.setattr(simulated_run, "SimulatedRecord", ScratchRecord)
    with_the_store = SimulatedRun(load_config(CONFIG))
    with_the_store.run(6)
    assert with_the_store.marks == with_its_own.marks
    assert with_the_store.trained == with_its_own.trained


@pytest.mark.parametrize("sync", ["all_at_once", "one_at_a_time"])
def test_no_arm_beats_the_bound_and_nothing_is_too_old(sync: str) -> None:
    for scheduling, bound in (("batch", 0), ("task", 2), ("rollout", 2)):
        arm = load_config(
            CONFIG,
            [f"curation.scheduling={scheduling}", f"curation.staleness={bound}", f"rollout.sync={sync}"],
        )
        found = predict(arm, 12)
        assert found.actions_per_min <= 1.2 * ideal(arm, 20).actions_per_min  # few updates: some luck is left
        assert 0 < found.env_util <= 1.0
        assert 0 < found.rollout_util <= 1.0
        assert found.staleness_max is not None
        assert found.staleness_max <= bound


def test_decoupling_wins_in_the_simulation() -> None:
    coupled = load_config(
        CONFIG, ["curation.scheduling=batch", "curation.staleness=0", "rollout.sync=all_at_once"]
    )
    assert predict(load_config(CONFIG), 30).actions_per_min > 2 * predict(coupled, 30).actions_per_min


def test_the_bound_is_the_slower_of_environments_with_engines_and_trainer() -> None:
    free = ideal(config("environments.count=1", "rollout.count=1"), 10)
    # Alone: 4 actions in 12 s.
    assert free.environments_and_engines_per_min == pytest.approx(60 * 4 / 12, rel=0.05)
    assert free.actions_per_min == free.environments_and_engines_per_min
    assert free.rollout_util == pytest.approx(4 * 0.75 / 12, rel=0.05)
    held_up = ideal(config("environments.count=1", "rollout.count=1", "simulation.update_each_s=100.0"), 10)
    assert held_up.actions_per_min == held_up.trainer_per_min < 1
    assert "the trainer set it" in held_up.words


def test_another_size_has_real_seconds_and_a_trainer_that_grew() -> None:
    stated = load_config(CONFIG)
    large = at_size(("batch", "all_at_once"), 180, 16, 22)
    times = 1 / stated.environments.latency.scale
    assert large.environments.latency.scale == 1.0
    assert large.simulation.generate_base_s == pytest.approx(times * stated.simulation.generate_base_s)
    assert large.simulation.update_each_s == pytest.approx(times * stated.simulation.update_each_s * 16 / 180)
    assert (large.environments.count, large.rollout.count, large.curation.staleness) == (180, 16, 0)


def test_the_real_curator_is_driven_at_any_size() -> None:
    found = decade(20, 40, 500)
    assert found.decisions >= 500
    assert found.decisions_per_s > 0
    assert found.curator_mib > 0
