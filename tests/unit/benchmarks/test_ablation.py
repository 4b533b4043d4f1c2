"""The pure parts of the ablation: arms, curves, which runs are missing, intervals and table."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import ablation, ablation_report
from benchmarks.ablation import ARMS, BASE, SWITCHES, Budget, PlayedEpisode, command, curve, finished, groups
from dart.config.config import load_config

BUDGET = Budget(actions=100, episodes=10, environments=2)


def line(arm: str, seed: int, after: int, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "arm": arm,
        "seed": seed,
        "actions": 100,
        "episodes": 10,
        "environments": 2,
        "before": {"a": [2, 10], "b": [0, 10]},
        "after": {"a": [after, 10], "b": [after, 10]},
        "curve": [{"actions": 50.0, "success": 0.5, "rollouts": 8.0, "length": 3.0}],
    }
    counts = dict.fromkeys(("rollouts", "trained", "dropped", "updates", "seconds"), 1)
    return found | counts | {"commit": "abc"} | changes


def test_there_are_twelve_arms_and_each_says_what_is_on() -> None:
    assert len(ARMS) == 12
    assert sorted(map(len, ARMS.values())) == [0, 1, 1, 1, 1, 1, 4, 4, 4, 4, 4, 5]
    for name in SWITCHES:
        assert ARMS["all"] - ARMS[f"all but {name}"] == ARMS[name] == {name}


@pytest.mark.parametrize("arm", [BASE, *ARMS])
def test_a_run_is_the_hard_job_with_the_switches_of_its_arm(arm: str, tmp_path: Path) -> None:
    words = command(arm, 7, BUDGET, tmp_path / "run")
    overrides = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    config = load_config(Path(words[4]), overrides).model_dump()
    for name, key in SWITCHES.items():
        section, switch = key.split(".")[1:]
        assert config["curation"][section][switch] == (name in ARMS.get(arm, ()))
    assert (config["run"]["seed"], config["training"]["actions"]) == (7, 100)
    assert (config["evaluation"]["before"], config["evaluation"]["after"]) == (arm == BASE, arm != BASE)


def test_a_curve_has_windows_of_equal_actions_whatever_the_length_of_episodes() -> None:
    short = [PlayedEpisode("a", 1.0, 1, 8, 10)] * 10
    long = [PlayedEpisode("b", 0.0, 5, 4, 10)] * 2
    first, second = curve([*short, *long], windows=2)
    assert (first["actions"], first["success"], first["rollouts"], first["length"]) == (5.0, 1.0, 8.0, 1.0)
    assert (second["actions"], second["success"], second["rollouts"], second["length"]) == (
        15.0,
        0.0,
        4.0,
        5.0,
    )


def test_what_was_decided_about_tasks_can_be_read_off_their_groups() -> None:
    found = groups([PlayedEpisode("a", 1.0, 2, 8, 10), PlayedEpisode("a", 0.0, 2, 4, 3)])
    assert found == {"a": {"episodes": 2, "least_rollouts": 4, "least_step_cap": 3, "success": 0.5}}


def test_failed_runs_and_other_budgets_do_not_count_as_done(tmp_path: Path) -> None:
    lines = [line("none", 0, 5), line("all", 0, 5, failed="exit code 1"), line("all", 0, 5, actions=200)]
    (tmp_path / "raw.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    assert [(one["arm"], one["actions"]) for one in finished(tmp_path, BUDGET)] == [("none", 100)]
    wanted = [("none", 0), ("all", 0)]
    assert ablation._missing(tmp_path, BUDGET, wanted) == [("all", 0)]


def test_a_gain_is_paired_by_seed_and_its_interval_holds_it() -> None:
    lines = [line("none", 0, 3), line("none", 1, 5), line("all", 0, 6), line("all", 1, 8), line("all", 2, 1)]
    none, all_ = ablation_report.rows(lines, ["none", "all", "high entropy"])
    assert none.gain is None
    assert none.before == pytest.approx(10.0)
    assert (none.after.mean, all_.after.mean) == (pytest.approx(40.0), pytest.approx(50.0))
    assert all_.gain is not None
    assert all_.gain.mean == pytest.approx(30.0)
    assert 0 < all_.gain.low < 30 < all_.gain.high < 60
    assert all_.after.low < 50 < all_.after.high


def test_without_spread_among_seeds_the_interval_is_that_of_the_episodes() -> None:
    """20 episodes at 50 %: the deviation of the share is 11.2 points."""
    (row,) = ablation_report.rows([line("none", 0, 5)], ["none"])
    assert row.after.high - row.after.low == pytest.approx(2 * 1.96 * 11.2, rel=0.15)


def test_table_and_picture_are_made_of_one_seed_and_few_arms(tmp_path: Path) -> None:
    lines = [line("none", 0, 3), line("all but high entropy", 0, 6)]
    found = ablation_report.rows(lines, list(ARMS))
    text = ablation_report.table(found)
    assert "all but high entropy" in text
    assert "72.28" in text
    assert json.loads(json.dumps(ablation_report.to_json(found, {})))["arms"][1]["gain"][
        "mean"
    ] == pytest.approx(30)
    ablation_report.picture(lines, found, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_job_that_is_not_hard_enough_is_told() -> None:
    hard = {"miniwob/a": [10, 40], "miniwob/b": [0, 40]}
    easy = {"miniwob/a": [30, 40], "miniwob/b": [0, 40]}
    lucky = {"miniwob/a": [10, 40], "miniwob/b": [1, 40]}

    assert ablation_report.condition([hard, hard]).startswith(
        "the job is hard: the base policy solves 12.5 %"
    )
    assert "never miniwob/b" in ablation_report.condition([hard])
    assert ablation_report.condition([easy]).startswith("THE JOB IS NOT HARD ENOUGH")
    assert ablation_report.condition([hard, lucky]).startswith("THE JOB IS NOT HARD ENOUGH")
