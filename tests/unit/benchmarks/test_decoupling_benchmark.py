"""The pure parts of the comparison of coupled and decoupled runs: figures, goals, table, arguments."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import decoupling, decoupling_report, runs
from benchmarks.decoupling import Results
from benchmarks.decoupling_cells import CELLS, COUPLED, DECOUPLED, Arm, Cell
from benchmarks.decoupling_report import Report, goals_of
from benchmarks.simulated_run import Bound

pytestmark = pytest.mark.slow

LATENCIES, APRIL, BROWSERS = CELLS

BOUND = Bound(
    actions_per_min=100.0,
    env_util=1.0,
    rollout_util=0.9,
    rollout_weighted=0.5,
    tokens_per_s=50.0,
    environments_and_engines_per_min=100.0,
    trainer_per_min=120.0,
    words="everything busy",
)


def result(arm: str, seed: int, cell: str = "latencies", **figures: float) -> dict[str, Any]:
    known = dict.fromkeys((name for name, _ in decoupling_report.SHOWN), 1.0)
    return {"cell": cell, "arm": arm, "seed": seed, "updates": 8, "figures": known | figures}


def results(decoupled: float = 90.0, busy: float = 0.87, in_episode: float = 0.95) -> list[dict[str, Any]]:
    own = {"rollout_util": busy, "env_util": in_episode}
    return [
        *(result(COUPLED, seed, actions_per_min=30.0 + seed) for seed in range(3)),
        *(result(DECOUPLED, seed, actions_per_min=decoupled, **own) for seed in range(3)),
        {"cell": "latencies", "arm": DECOUPLED, "seed": 3, "updates": 8, "failed": "exit code 75"},
    ]


@pytest.mark.parametrize(
    ("values", "expected"),
    [([4.0], (4, 4, 4)), ([1.0, 2.0, 3.0, 4.0, 5.0], (3, 2, 4)), ([4.0, 1.0], (2.5, 1.75, 3.25))],
)
def test_median_and_quartiles(values: list[float], expected: tuple[float, float, float]) -> None:
    assert runs.median_and_quartiles(values) == pytest.approx(expected)


def test_ratios_are_taken_seed_by_seed_and_what_failed_is_left_out() -> None:
    found = decoupling_report.ratios(results(), "latencies", DECOUPLED, COUPLED, "actions_per_min")
    assert found == pytest.approx([90 / 30, 90 / 31, 90 / 32])


@pytest.mark.parametrize(
    ("changed", "met"),
    [
        ({}, [True, True, True]),
        ({"decoupled": 70.0}, [False, True, True]),
        ({"in_episode": 0.89}, [True, False, True]),
        ({"busy": 0.80}, [True, True, False]),  # 0.9 of the bound of 0.9 is 0.81
    ],
)
def test_the_goals_of_the_latencies(changed: dict[str, float], met: list[bool]) -> None:
    assert [goal.is_met for goal in goals_of(LATENCIES, results(**changed), BOUND)] == met


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    assert [goal.is_met for goal in goals_of(LATENCIES, [], BOUND)] == [None] * 3
    assert [goal.is_met for goal in goals_of(APRIL, [], BOUND)] == [None] * 2
    assert goals_of(BROWSERS, results(), None) == []


@pytest.mark.parametrize(
    ("useful", "trained", "met"),
    [(140.0, 10.1, [True, True]), (130.0, 10.1, [False, True]), (140.0, 9.7, [True, False])],
)
def test_over_provisioning_is_judged_at_its_best_alpha_with_its_bias(
    useful: float, trained: float, met: list[bool]
) -> None:
    first, *others = (arm.name for arm in APRIL.arms)
    found = [result(first, 0, "april", tokens_per_s=100.0)]
    found += [result(name, 0, "april", tokens_per_s=90.0) for name in others[:-1]]
    found.append(
        result(others[-1], 0, "april", tokens_per_s=useful, trained_length=trained, sampled_length=10.0)
    )
    assert [goal.is_met for goal in goals_of(APRIL, found, BOUND)] == met


def test_the_table_has_the_bound_beside_a_figure_and_says_what_was_not_measured() -> None:
    goals = goals_of(LATENCIES, results(), BOUND)
    text = decoupling_report.table(
        Report(cell=LATENCIES, results=results(), bound=BOUND, predictions={}, goals=goals)
    )
    assert "actions/min in updates   bound 100" in text
    assert "engines busy   bound 90.0 %" in text
    assert "task+all_at_once         not measured" in text
    assert "within 5 % of the bound: 0.870, goal 0.855: met" in text


BOUNDED = {"actions_per_min", "env_util", "rollout_util", "rollout_weighted", "tokens_per_s"}


def test_a_run_too_short_for_a_steady_state_has_no_rates_and_says_so() -> None:
    """What its updates used had been played before: 129 % of the bound once."""
    report = decoupling_report.judged(LATENCIES, results(decoupled=1e6), updates=3, warm_up=2)
    text = decoupling_report.table(report)
    assert "too short: 1 update was measured, a steady state takes at least 5" in text
    assert "1,000,000" not in text
    assert decoupling_report.above_bound(report) == []
    assert {goal.is_met for goal in report.goals} == {None}
    figures = report.as_json()["arms"][DECOUPLED]
    assert {name for name, found in figures.items() if found is None} - {"length_bias"} == BOUNDED | {
        "goodput"
    }
    one = results(decoupled=1e6)[-2] | {"updates": 3, "warm_up": 2, "wall_s": 30.0, "load_average": 1.0}
    assert decoupling.said(one).endswith(report.too_short)
    assert decoupling.exit_code([report], [], is_quick=True) == 0
    assert decoupling.exit_code([report], [], is_quick=False) == 1


def test_a_figure_above_its_bound_is_a_fault_of_the_measurement() -> None:
    report = decoupling_report.judged(LATENCIES, results(decoupled=1e6), updates=10, warm_up=3)
    (fault,) = [text for text in decoupling_report.above_bound(report) if "actions_per_min" in text]
    assert fault.startswith(f"latencies {DECOUPLED}: actions_per_min is 1,000,000, above its bound")
    table = decoupling_report.table(report)
    assert "1,000,000" not in table
    assert "above its bound" in table
    assert decoupling.exit_code([report], [fault], is_quick=True) == 1


def test_what_reaches_its_bound_is_no_fault() -> None:
    report = Report(cell=LATENCIES, results=results(100.0), bound=BOUND, predictions={}, goals=[])
    found = decoupling_report.above_bound(report)
    assert [text for text in found if "actions_per_min" in text and DECOUPLED in text] == []


def test_a_goal_that_is_missed_says_so() -> None:
    goals = goals_of(LATENCIES, results(decoupled=60.0), BOUND)
    assert "goal 2.500: MISSED" in decoupling_report.goal_line(goals[0])


def test_every_arm_of_every_cell_is_a_valid_configuration_with_the_same_samples() -> None:
    for cell in CELLS:
        configs = [decoupling.config_of(cell, arm, 3, 5) for arm in cell.arms]
        assert {(c.run.seed, c.training.updates) for c in configs} == {(3, 5)}
        assert len({(c.tasks, c.training, c.environments, c.simulation) for c in map(frozen, configs)}) == 1
    staleness = {
        arm.name: decoupling.config_of(LATENCIES, arm, 0, 5).curation.staleness for arm in LATENCIES.arms
    }
    assert {name for name, bound in staleness.items() if bound == 0} == {COUPLED, "batch+one_at_a_time"}


class frozen:
    """What must be the same in every arm, comparable."""

    def __init__(self, config: Any) -> None:
        for name in ("tasks", "training", "environments", "simulation"):
            setattr(self, name, getattr(config, name).model_dump_json())


def test_raw_results_are_kept_as_they_come_and_taken_up_again(tmp_path: Path) -> None:
    path = tmp_path / "out" / "raw.jsonl"
    coupled, decoupled = (arm for arm in LATENCIES.arms if arm.name in (COUPLED, DECOUPLED))
    first = Results(path, fresh=False)
    first.add(result(COUPLED, 0) | {"fingerprint": fingerprint_of(coupled, 0, 8)})
    first.add({"fingerprint": fingerprint_of(decoupled, 0, 8), "failed": "exit code 1"})

    again = Results(path, fresh=False)
    assert again.all == first.all
    assert again.of(decoupling.config_of(LATENCIES, coupled, 0, 8)) == first.all[0]
    assert again.of(decoupling.config_of(LATENCIES, coupled, 0, 9)) is None
    assert again.of(decoupling.config_of(LATENCIES, coupled, 1, 8)) is None
    assert again.of(decoupling.config_of(LATENCIES, decoupled, 0, 8)) is None, "what failed is measured again"

    assert Results(path, fresh=True).all == []
    (aside,) = [found for found in path.parent.iterdir() if found != path]
    assert len(aside.read_text().splitlines()) == 2, "what was measured is put aside, not thrown away"


def fingerprint_of(arm: Arm, seed: int, updates: int) -> str:
    return decoupling.fingerprint(decoupling.config_of(LATENCIES, arm, seed, updates))


def test_runs_that_are_missing_or_not_sound_are_told(tmp_path: Path) -> None:
    coupled, decoupled = (arm for arm in LATENCIES.arms if arm.name in (COUPLED, DECOUPLED))
    cell = replace(LATENCIES, arms=(coupled, decoupled))
    results = Results(tmp_path / "raw.jsonl", fresh=False)
    sound = {"lost": 0, "doubled": 0, "violations": []}
    results.add(result(COUPLED, 0) | {"fingerprint": fingerprint_of(coupled, 0, 8), "audit": sound})
    results.add(
        result(DECOUPLED, 0)
        | {"fingerprint": fingerprint_of(decoupled, 0, 8), "audit": sound | {"violations": ["a gap"]}}
    )

    found, wrong = decoupling.wanted(cell, results, updates=8, seeds=2)

    assert len(found) == 2
    assert [text.split(":")[0] for text in wrong] == [
        f"latencies {DECOUPLED} seed 0",
        f"latencies {COUPLED} seed 1",
        f"latencies {DECOUPLED} seed 1",
    ]
    assert "a gap" in wrong[0]


def test_pictures_are_drawn_of_whatever_was_measured(tmp_path: Path) -> None:
    cell = Cell(
        name="latencies", config="", arms=(Arm(COUPLED, {}), Arm(DECOUPLED, {})), updates=2, warm_up=1
    )
    for found in (results(), []):
        report = Report(cell=cell, results=found, bound=BOUND, predictions={}, goals=[])
        decoupling_report.draw(report, tmp_path / "picture.png")
        assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("arguments", [["--seeds", "0"], ["--updates", "1"], ["--cell", "nowhere"]])
def test_arguments_that_make_no_sense_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        decoupling.parse(arguments)


def test_only_the_arms_asked_for_are_measured() -> None:
    options = decoupling.parse(["--arm", COUPLED, "alpha 2"])
    assert [(cell.name, [arm.name for arm in cell.arms]) for cell in decoupling.chosen(options)] == [
        ("latencies", [COUPLED]),
        ("april", ["alpha 2"]),
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (0.5, "0.5"), ("batch", '"batch"'), (["a", 1], '["a", 1]'), (1e-9, "1e-09")],
)
def test_values_are_told_to_a_run_as_toml(value: Any, text: str) -> None:
    assert runs.toml_value(value) == text
