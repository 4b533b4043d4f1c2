"""Memory-Q against its formulas, written out over all remembered tries."""

import math
import random

import pytest

from dart.core.exploration import Candidate, Effect, ExploreAct, ExploredStep
from dart.exploration import memory_q
from dart.exploration.memory_q import BETA, GAMMA, KAPPA, LAMBDA, PRIOR, REWARDS, MemoryQ
from dart.exploration.strategies import MemoryQStrategy
from tests.unit.exploration.screens import chain, click, step


def candidate(role: str, text: str) -> Candidate:
    return Candidate(act=ExploreAct.CLICK, role=role, text=text)


def kernel(screen_id: int, one: Candidate, other_id: int, other: Candidate) -> float:
    if one.kind != other.kind:
        return 0.0
    return (1.0 if one.text == other.text else 0.5) * (1.0 if screen_id == other_id else 0.5)


def test_a_value_without_memory_is_the_prior() -> None:
    memory = MemoryQ(lambda _: (), prior=lambda screen_id, _: 0.25 * screen_id)
    assert memory.q(2, candidate("button", "ok")) == 0.5
    assert MemoryQ(lambda _: ()).q(2, candidate("button", "ok")) == PRIOR


def test_sums_by_kind_text_and_screen_equal_the_kernel_over_the_whole_memory() -> None:
    rng = random.Random(3)
    memory = MemoryQ(lambda _: ())
    tries = [
        (
            rng.randrange(3),
            candidate(rng.choice(["button", "link"]), rng.choice("abc")),
            rng.choice([*REWARDS]),
        )
        for _ in range(17)
    ]
    for screen_id, one, effect in tries:
        memory.learn(screen_id, one, effect, None)
    for screen_id in range(4):
        for role in ("button", "link", "img"):
            asked = candidate(role, "b")
            weights = [kernel(screen_id, asked, other_id, other) for other_id, other, _ in tries]
            values = [REWARDS[effect] for _, _, effect in tries]
            expected = KAPPA * PRIOR + sum(k * y for k, y in zip(weights, values, strict=True))
            assert memory.q(screen_id, asked) == pytest.approx(expected / (KAPPA + sum(weights)))


def test_a_target_adds_the_best_value_of_the_next_screen() -> None:
    there = candidate("link", "there")
    memory = MemoryQ(lambda screen_id: (there,) if screen_id == 2 else ())
    memory.learn(1, candidate("button", "go"), Effect.KNOWN_SCREEN, 2)
    assert memory.q(1, candidate("button", "go")) == pytest.approx((PRIOR + GAMMA * PRIOR) / 2)


def test_a_sweep_takes_what_was_learnt_since_into_the_targets() -> None:
    there = candidate("link", "there")
    memory = MemoryQ(lambda screen_id: (there,) if screen_id == 2 else ())
    memory.learn(1, candidate("button", "go"), Effect.KNOWN_SCREEN, 2)
    memory.learn(2, there, Effect.NEW_SHAPE, None)
    before = memory.q(1, candidate("button", "go"))
    memory.sweep()
    assert memory.q(2, there) == pytest.approx((PRIOR + 1.0) / 2)
    assert memory.q(1, candidate("button", "go")) == pytest.approx((PRIOR + GAMMA * memory.q(2, there)) / 2)
    assert memory.q(1, candidate("button", "go")) > before


def test_one_sweep_takes_a_find_back_over_all_screens_on_the_way_to_it() -> None:
    there, further = candidate("link", "there"), candidate("tab", "further")
    memory = MemoryQ(lambda screen_id: {2: (there,), 3: (further,)}.get(screen_id, ()))
    memory.learn(1, candidate("button", "go"), Effect.KNOWN_SCREEN, 2)
    memory.learn(2, there, Effect.KNOWN_SCREEN, 3)
    memory.learn(3, further, Effect.NEW_SHAPE, None)
    memory.sweep()
    assert memory.q(2, there) == pytest.approx((PRIOR + GAMMA * memory.q(3, further)) / 2)
    assert memory.q(1, candidate("button", "go")) == pytest.approx((PRIOR + GAMMA * memory.q(2, there)) / 2)


def test_an_action_that_leaves_its_screen_as_it_is_gets_no_value_from_what_else_the_screen_has() -> None:
    memory = MemoryQ(lambda _: (candidate("link", "there"),))
    one = candidate("button", "ok")
    memory.learn(1, one, Effect.NO_CHANGE, 1)
    assert memory.q(1, one) == pytest.approx((PRIOR + REWARDS[Effect.NO_CHANGE]) / 2)


def test_a_fault_counts_as_a_try_and_says_nothing_about_the_value() -> None:
    memory = MemoryQ(lambda _: ())
    one = candidate("button", "ok")
    memory.learn(1, one, Effect.FAULT, None)
    assert memory.tries(1, one) == 1
    assert memory.q(1, one) == PRIOR


def test_the_bonus_falls_with_tries_here_and_each_try_is_fined() -> None:
    memory = MemoryQ(lambda _: ())
    tried, other = candidate("button", "a"), candidate("link", "b")
    memory.learn(1, tried, Effect.NO_CHANGE, 1)
    bonus = math.sqrt(math.log(3))
    assert memory.u(1, other) == pytest.approx(PRIOR + BETA * bonus)
    assert memory.u(1, tried) == pytest.approx(memory.q(1, tried) + BETA * bonus / math.sqrt(2) - LAMBDA)


def old_steps(number: int) -> list[ExploredStep]:
    """Steps of an earlier process on `chain(10)`."""
    rng = random.Random(7)
    sources = [rng.randrange(1, 10) for _ in range(number)]
    return [
        step(100 + at, source, click("next").key, Effect.KNOWN_SCREEN, source + 1)
        for at, source in enumerate(sources)
    ]


def computed_values(steps: int) -> int:
    """Number of values Q that a strategy computes to learn steps of an earlier process."""
    counted = 0

    def prior(screen_id: int, candidate: Candidate) -> float:
        nonlocal counted
        counted += 1
        return PRIOR

    MemoryQStrategy(chain(10), random.Random(0), prior).saw(old_steps(steps))
    return counted


def test_the_record_of_an_earlier_process_is_learnt_at_a_cost_linear_in_its_steps() -> None:
    assert 0 < computed_values(1000) <= 2.2 * computed_values(500)


def test_a_try_costs_no_more_when_the_record_is_longer_than_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_q, "SWEEP_MOST", 40)
    asked = 0

    def candidates_of(screen_id: int) -> tuple[Candidate, ...]:
        nonlocal asked
        asked += 1
        return ()

    memory, costs = MemoryQ(candidates_of), list[int]()
    for _ in range(5):
        asked = 0
        for _ in range(40):
            memory.learn(1, candidate("link", "there"), Effect.KNOWN_SCREEN, 2)
        costs.append(asked)
    assert costs[1:] == [40 + 2 * 40] * 4


def test_a_long_computation_shows_that_it_makes_progress() -> None:
    shown: list[int] = []
    strategy = MemoryQStrategy(chain(10), random.Random(0), still_working=lambda: shown.append(1))
    strategy.saw(old_steps(100))
    assert len(shown) == 100 + 100  # once for each target as it is learnt, and once in the sweep
