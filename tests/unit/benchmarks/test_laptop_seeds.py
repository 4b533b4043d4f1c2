"""The table over runs says what the runs' own reports say, with intervals over runs."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import laptop_seeds
from dart.core.statistics import Score
from dart.inspect.report import EvaluationResult, RunReport, SuccessReport, to_json, write_json

TASK = "miniwob/click-test-2"


def report(before: int, after: int, *, is_greedy: bool = True) -> dict[str, Any]:
    sampled = SuccessReport(
        EvaluationResult({TASK: Score(before, 50)}), EvaluationResult({TASK: Score(after, 50)})
    )
    greedy = SuccessReport(
        EvaluationResult({TASK: Score(20, 25)}), EvaluationResult({TASK: Score(21, 25)}), answers="greedy"
    )
    return {**to_json(sampled), "greedy": to_json(greedy) if is_greedy else None}


REPORTS = {0: report(25, 40), 1: report(23, 30), 2: report(24, 45)}


def test_a_figure_of_several_runs_has_its_median_its_ends_and_an_interval_over_runs() -> None:
    after = laptop_seeds.spread(REPORTS, "sampled", TASK, "after")

    assert after is not None
    assert after.values == (0.8, 0.6, 0.9)
    assert after.median == 0.8
    low, high = after.to_json()["interval_of_mean"]
    assert low == pytest.approx(0.387, abs=0.001)  # 0.7667 -+ 4.303 * 0.1528 / sqrt(3)
    assert high == pytest.approx(1.146, abs=0.001)


def test_the_change_is_that_of_each_run() -> None:
    change = laptop_seeds.spread(REPORTS, "sampled", laptop_seeds.MEAN, "change")

    assert change is not None
    assert change.values == pytest.approx((0.3, 0.14, 0.42))


def test_one_run_has_no_interval() -> None:
    only = laptop_seeds.spread({0: REPORTS[0]}, "greedy", TASK, "after")

    assert only is not None
    assert only.to_json()["interval_of_mean"] is None
    assert "one run: no interval" in laptop_seeds.markdown({0: REPORTS[0]}, 0)


def test_alarms_of_the_runs_are_told_with_the_hours_they_took() -> None:
    quiet = {"wall_s": 1800.0, "alarms_raised": []}
    loud = {"wall_s": 1800.0, "alarms_raised": ["equal_rewards", "task_unlearned", "equal_rewards"]}

    assert laptop_seeds.alarms_line([quiet, quiet]) == "Alarms raised: 0 in 1.00 hours."
    told = laptop_seeds.alarms_line([quiet, loud])
    assert told == "Alarms raised: 3 (equal_rewards, task_unlearned) in 1.00 hours."
    assert laptop_seeds.alarms_line([quiet, {"wall_s": 1800.0}]) == ""


def test_what_one_run_did_not_measure_is_not_in_the_table() -> None:
    reports = {0: REPORTS[0], 1: report(25, 25, is_greedy=False)}

    text = laptop_seeds.markdown(reports, failures=1)

    assert "| click-test-2 | 50 (50 – 50) | 65 (50 – 80) | – | – |" in text
    assert "Runs that failed and are not in it: 1." in text
    assert laptop_seeds.to_json(reports, 1)["greedy"][TASK] == {}


def test_seeds_that_have_a_report_are_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[int] = []

    def run(out: Path, config: Path, seed: int, overrides: Any) -> None:
        ran.append(seed)
        folder = out / f"seed-{seed}"
        folder.mkdir(parents=True)
        score = EvaluationResult({TASK: Score(1, 2)})
        write_json(RunReport(SuccessReport(score, score), SuccessReport()), folder / "report.json", about={})

    monkeypatch.setattr(laptop_seeds, "run", run)
    monkeypatch.setattr(sys, "argv", ["laptop_seeds", "--out", str(tmp_path), "--seeds", "0", "3"])
    assert laptop_seeds.main() == 0
    monkeypatch.setattr(sys, "argv", ["laptop_seeds", "--out", str(tmp_path), "--seeds", "0", "3", "4"])
    assert laptop_seeds.main() == 0

    assert ran == [0, 3, 4]
    assert json.loads((tmp_path / "laptop_seeds.json").read_text())["seeds"] == [0, 3, 4]
    assert "median of 3 runs" in capsys.readouterr().out


def test_two_files_are_compared_seed_by_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[tuple[str, int]] = []
    successes = {("a", 0): 20, ("b", 0): 30, ("a", 1): 10, ("b", 1): 24}

    def run(out: Path, config: Path, seed: int, overrides: Any) -> None:
        ran.append((config.stem, seed))
        about = {"updates": 9, "trajectories": 90, "seconds": 700.0}
        made = report(10, successes[config.stem, seed]) | about
        folder = out / f"seed-{seed}"
        folder.mkdir(parents=True)
        (folder / "report.json").write_text(json.dumps(made))

    monkeypatch.setattr(laptop_seeds, "run", run)
    out = str(tmp_path)
    argv = ["laptop_seeds", "--config", "a.toml", "b.toml", "--out", out, "--seeds", "0", "1"]
    monkeypatch.setattr(sys, "argv", argv)
    assert laptop_seeds.main() == 0
    assert ran == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    found = json.loads((tmp_path / "comparison.json").read_text())
    assert found["files"] == ["a", "b"]
    assert found["sampled after"]["difference"]["runs"] == pytest.approx([0.2, 0.28])
    assert "| sampled after | 30.0 | 54.0 | +24.0 (-26.8 to +74.8) |" in capsys.readouterr().out
